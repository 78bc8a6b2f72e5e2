package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
)

var (
	heartbeat = []byte(": heartbeat\n\n")
	done      = []byte("data: [DONE]\n\n")
)

// sse writes one stream: a frame for each event, flushed the moment it comes, and a comment after each silence.
//
// The answer begins with the first event, or with the first heartbeat: what fails before is a JSON answer with its
// status, and what fails between is told in an event of its own (late.go). A stream that breaks behind its first event
// simply ends, without [DONE]; the caller attaches again after its last id. One goroutine, the request's own, reads and
// writes; a timer's beats come in between.
type sse struct {
	writer  http.ResponseWriter
	asked   proto.Message
	control *http.ResponseController
	every   time.Duration
	slow    time.Duration
	beat    *time.Timer

	mutex sync.Mutex
	begun bool
	ended bool
	frame []byte
}

func newSSE(w http.ResponseWriter, asked proto.Message, settings Settings) *sse {
	s := &sse{
		writer: w, asked: asked, control: http.NewResponseController(w),
		every: settings.Heartbeat, slow: settings.SlowReader,
	}
	s.mutex.Lock() // the first beat may come before its timer is kept
	defer s.mutex.Unlock()
	s.beat = time.AfterFunc(s.every, func() { _ = s.write(heartbeat) })
	return s
}

// copy writes what `call` streams until its run or the call ends, or the client has gone, with whom `ctx` ends.
func (s *sse) copy(ctx context.Context, call grpc.ClientStream) {
	for first := true; ; first = false {
		delta := new(headracev1.AgentDelta)
		if err := call.RecvMsg(delta); err != nil {
			s.end(ctx, err, first)
			return
		}
		if isLast, err := s.event(delta); isLast || err != nil {
			return
		}
	}
}

func (s *sse) event(delta *headracev1.AgentDelta) (isLast bool, err error) {
	event, ok := jsonform.EncodeEvent(delta)
	if !ok {
		return false, nil
	}
	s.frame = appendFrame(s.frame[:0], event)
	return event.IsTerminal, s.write(s.frame)
}

func appendFrame(frame []byte, event jsonform.Event) []byte {
	frame = append(frame, "id: "...)
	frame = strconv.AppendUint(frame, event.Seq, 10)
	frame = append(frame, "\nevent: message\ndata: "...)
	frame = append(frame, event.JSON...)
	frame = append(frame, "\n\n"...)
	if event.IsTerminal {
		frame = append(frame, done...)
	}
	return frame
}

// end is for a call that gives no more. When it gave nothing at all, the caller attached after the run's last event, or
// the error is the answer: to a caller who is still there.
func (s *sse) end(ctx context.Context, err error, isFirst bool) {
	if errors.Is(err, io.EOF) {
		if isFirst {
			_ = s.write(done)
		} else {
			interrupted.Note(s.writer)
		}
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ended = true; !s.begun {
		fail(s.writer, err)
		return
	}
	failure := envelope.Of(err)
	failure.Note(s.writer)
	if !isFirst || ctx.Err() != nil {
		return
	}
	if event, ok := jsonform.EncodeEvent(runError(s.asked, failure)); ok {
		_ = s.put(appendFrame(nil, event))
	}
}

// write sends a whole frame and flushes it. A client that takes nothing for so long is hung up on; its run goes on.
func (s *sse) write(frame []byte) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ended {
		return http.ErrHandlerTimeout
	}
	if !s.begun {
		s.begin()
	}
	s.beat.Reset(s.every)
	return s.put(frame)
}

// put writes for whoever has the mutex.
func (s *sse) put(frame []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.slow))
	if _, err := s.writer.Write(frame); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *sse) begin() {
	s.begun = true
	header := s.writer.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	s.writer.WriteHeader(http.StatusOK)
}

// stop ends the beats; none is being written when it returns.
func (s *sse) stop() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ended = true
	s.beat.Stop()
}
