package main

import (
	"encoding/json"
	"os"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	headrace "headrace/v1"
)

// TestFold holds the fold to the cases that the readers in other languages are held to.
func TestFold(t *testing.T) {
	path := os.Getenv("FOLD_CASES")
	if path == "" {
		t.Skip("FOLD_CASES names no file")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name, RunID, Answer string
		LastSeq             uint64
		IsOver              bool
		Events              []json.RawMessage
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err, len(cases))
	}
	for _, wanted := range cases {
		t.Run(wanted.Name, func(t *testing.T) {
			state := &Fold{}
			for _, text := range wanted.Events {
				event := &headrace.AgentDelta{}
				if err := protojson.Unmarshal(text, event); err != nil {
					t.Fatal(err)
				}
				state.Apply(event)
			}
			if state.Answer() != wanted.Answer || state.RunID != wanted.RunID || state.LastSeq != wanted.LastSeq {
				t.Errorf("answer %q, run %q, seq %d", state.Answer(), state.RunID, state.LastSeq)
			}
			if (state.End != nil) != wanted.IsOver {
				t.Errorf("end %v", state.End)
			}
		})
	}
}
