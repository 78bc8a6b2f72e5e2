package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

const alerts = "../../../deploy/helm/headrace/files/alerts.yaml"

// A counter's series begins with its first event, before which there is no sample that it could have grown from.
func TestOneFailureByABugIsSeen(t *testing.T) {
	for _, series := range [][]string{
		{"__name__", "headrace_rpc_duration_seconds_count", "namespace", "n", "pod", "p", "method", "/m", "code", "INTERNAL"},
		{"__name__", "headrace_runs_ended_total", "namespace", "n", "pod", "p", "state", "FAILED", "error", "INTERNAL"},
	} {
		var fires []bool
		for _, minutes := range []int{9, 12, 40} {
			fires = append(fires, evaluate(t, "HeadraceBug", at(10, 60, 1, series), minutes) > 0)
		}
		if fires[0] || !fires[1] || fires[2] {
			t.Errorf("%v: before, after and long after it: %v", series, fires)
		}
	}
}

// at returns a series with the same value each 30 s between two minutes.
func at(from, until int, value float64, series []string) storage.Series {
	var times []int64
	var values []float64
	for ms := int64(from) * 60_000; ms < int64(until)*60_000; ms += 30_000 {
		times, values = append(times, ms), append(values, value)
	}
	return seekable{storage.MockSeries(nil, times, values, series)}
}

// seekable has what Prometheus' own series for tests lacks.
type seekable struct{ storage.Series }

func (series seekable) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	return &seeking{Iterator: series.Series.Iterator(nil)}
}

type seeking struct {
	chunkenc.Iterator
	kind chunkenc.ValueType
}

func (samples *seeking) Next() chunkenc.ValueType {
	samples.kind = samples.Iterator.Next()
	return samples.kind
}

func (samples *seeking) Seek(ms int64) chunkenc.ValueType {
	for samples.kind == chunkenc.ValNone || samples.AtT() < ms {
		if samples.Next() == chunkenc.ValNone {
			break
		}
	}
	return samples.kind
}

// evaluate returns how many series an alert's expression has at a minute.
func evaluate(t *testing.T, alert string, series storage.Series, minutes int) int {
	data := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			for _, matcher := range matchers {
				if !matcher.Matches(series.Labels().Get(matcher.Name)) {
					return storage.EmptySeriesSet()
				}
			}
			return &oneSeries{SeriesSet: storage.TestSeriesSet(series)}
		},
	}}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	query, err := engine.NewInstantQuery(context.Background(), data, nil, expression(t, alert), time.UnixMilli(int64(minutes)*60_000))
	if err != nil {
		t.Fatal(err)
	}
	result := query.Exec(context.Background())
	found, err := result.Vector()
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// oneSeries ends, which Prometheus' own set for tests does not.
type oneSeries struct {
	storage.SeriesSet
	isRead bool
}

func (set *oneSeries) Next() bool {
	isFirst := !set.isRead
	set.isRead = true
	return isFirst
}

func expression(t *testing.T, alert string) string {
	promql := parser.NewParser(parser.Options{})
	file, problems := rulefmt.ParseFile(alerts, false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	if problems != nil {
		t.Fatal(problems)
	}
	for _, rule := range file.Groups[0].Rules {
		if rule.Alert == alert {
			return rule.Expr
		}
	}
	t.Fatalf("no alert %s", alert)
	return ""
}
