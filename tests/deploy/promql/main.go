// Command promql reads a file of alert rules and, a line each from standard input, further expressions, with
// Prometheus' own parsers. It prints the metrics that they name, each with the labels it must have.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	promql := parser.NewParser(parser.Options{})
	groups, problems := rulefmt.ParseFile(os.Args[1], false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	if problems != nil {
		fail(problems)
	}
	var expressions []string
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			expressions = append(expressions, rule.Expr)
		}
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		expressions = append(expressions, lines.Text())
	}
	metrics := map[string]map[string]bool{}
	for _, text := range expressions {
		expression, err := promql.ParseExpr(text)
		if err != nil {
			fail(text, err)
		}
		collect(expression, metrics)
	}
	if err := json.NewEncoder(os.Stdout).Encode(metrics); err != nil {
		fail(err)
	}
}

// collect adds the labels that an expression selects or groups each metric by.
func collect(expression parser.Expr, metrics map[string]map[string]bool) {
	parser.Inspect(expression, func(node parser.Node, above []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		if metrics[selector.Name] == nil {
			metrics[selector.Name] = map[string]bool{}
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != labels.MetricName {
				metrics[selector.Name][matcher.Name] = true
			}
		}
		for _, ancestor := range above {
			if aggregate, ok := ancestor.(*parser.AggregateExpr); ok && !aggregate.Without {
				for _, name := range aggregate.Grouping {
					metrics[selector.Name][name] = true
				}
			}
		}
		return nil
	})
}

func fail(problem ...any) {
	fmt.Fprintln(os.Stderr, problem...)
	os.Exit(1)
}
