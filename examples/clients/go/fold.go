package main

import (
	"strings"

	headrace "headrace/v1"
)

// Fold is the state of a run after the events so far. A start or a snapshot replaces a block, a delta appends to it, and an
// attempt.reset drops the blocks of its scope that began after its fromSeq: the same object reads on after attaching again.
type Fold struct {
	RunID   string
	LastSeq uint64
	// End is the terminal event; nil while the run goes on.
	End    *headrace.AgentDelta
	blocks []*block
}

type block struct {
	id       string
	seq      uint64
	scope    scope
	text     strings.Builder
	isAnswer bool
	isCall   bool
}

// scope is the sub-agent and the task that an event belongs to; both are empty for the run itself.
type scope struct{ subagent, task string }

// Answer is the run's answer so far: the text behind its last call.
func (f *Fold) Answer() string {
	var answer strings.Builder
	for _, b := range f.blocks {
		if b.isCall && b.scope == (scope{}) {
			answer.Reset()
		} else if b.isAnswer {
			answer.WriteString(b.text.String())
		}
	}
	return answer.String()
}

// Apply takes the next event; unknown ones change nothing.
func (f *Fold) Apply(event *headrace.AgentDelta) {
	f.LastSeq = max(f.LastSeq, event.GetSeq())
	at := scope{event.GetSubagentId(), event.GetTaskId()}
	switch payload := event.GetPayload().(type) {
	case *headrace.AgentDelta_RunStart:
		if id := payload.RunStart.GetRunId(); id != f.RunID { // the next run of a chat's history
			*f = Fold{RunID: id, LastSeq: event.GetSeq()}
		}
	case *headrace.AgentDelta_ContentStart:
		f.openText(event, payload.ContentStart.GetContentId(), payload.ContentStart.IsAnswer, "")
	case *headrace.AgentDelta_ContentSnapshot:
		f.openText(event, payload.ContentSnapshot.GetContentId(), payload.ContentSnapshot.IsAnswer, payload.ContentSnapshot.GetText())
	case *headrace.AgentDelta_ContentDelta:
		for _, b := range f.blocks {
			if b.id == payload.ContentDelta.GetContentId() {
				b.text.WriteString(payload.ContentDelta.GetDelta())
			}
		}
	case *headrace.AgentDelta_ToolStart:
		f.open(&block{id: payload.ToolStart.GetToolId(), seq: event.GetSeq(), scope: at, isCall: true})
	case *headrace.AgentDelta_ToolSnapshot:
		f.open(&block{id: payload.ToolSnapshot.GetToolId(), seq: event.GetSeq(), scope: at, isCall: true})
	case *headrace.AgentDelta_AttemptReset:
		kept := f.blocks[:0]
		for _, b := range f.blocks {
			if b.scope != at || b.seq <= payload.AttemptReset.GetFromSeq() {
				kept = append(kept, b)
			}
		}
		f.blocks = kept
	case *headrace.AgentDelta_RunComplete, *headrace.AgentDelta_RunCancel, *headrace.AgentDelta_RunError:
		f.End = event
	}
}

func (f *Fold) openText(event *headrace.AgentDelta, id string, isAnswer *bool, text string) {
	b := &block{id: id, seq: event.GetSeq(), scope: scope{event.GetSubagentId(), event.GetTaskId()}}
	b.isAnswer = b.scope == scope{}
	if isAnswer != nil {
		b.isAnswer = *isAnswer
	}
	b.text.WriteString(text)
	f.open(b)
}

func (f *Fold) open(b *block) {
	for i, known := range f.blocks {
		if known.id == b.id {
			f.blocks[i] = b
			return
		}
	}
	f.blocks = append(f.blocks, b)
}
