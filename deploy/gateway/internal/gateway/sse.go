package gateway

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/jsonform"
)

var (
	heartbeat = []byte(": heartbeat\n\n")
	done      = []byte("data: [DONE]\n\n")
)

// sse writes one stream: a frame for each event, flushed the moment it comes, and a comment after each silence.
//
// The answer begins with the first event, or with the first heartbeat: what fails before is a JSON answer with its
// status. A stream that breaks later simply ends, without [DONE]; the caller attaches again after its last id. One
// goroutine, the request's own, reads and writes; a timer's beats come in between.
type sse struct {
	writer  http.ResponseWriter
	control *http.ResponseController
	every   time.Duration
	slow    time.Duration
	beat    *time.Timer

	mutex sync.Mutex
	begun bool
	ended bool
	frame []byte
}

func newSSE(w http.ResponseWriter, settings Settings) *sse {
	s := &sse{writer: w, control: http.NewResponseController(w), every: settings.Heartbeat, slow: settings.SlowReader}
	s.beat = time.AfterFunc(s.every, func() { _ = s.write(heartbeat) })
	return s
}

// copy writes what `call` streams until its run or the call ends, or the client has gone.
func (s *sse) copy(call grpc.ClientStream) {
	for first := true; ; first = false {
		delta := new(headracev1.AgentDelta)
		if err := call.RecvMsg(delta); err != nil {
			s.end(err, first)
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
	frame := append(s.frame[:0], "id: "...)
	frame = strconv.AppendUint(frame, event.Seq, 10)
	frame = append(frame, "\nevent: message\ndata: "...)
	frame = append(frame, event.JSON...)
	frame = append(frame, "\n\n"...)
	if event.IsTerminal {
		frame = append(frame, done...)
	}
	s.frame = frame
	return event.IsTerminal, s.write(frame)
}

// end is for a call that gives no more. When it gave nothing at all, the caller attached after the run's last event, or
// the error is the answer.
func (s *sse) end(err error, isFirst bool) {
	if errors.Is(err, io.EOF) {
		if isFirst {
			_ = s.write(done)
		}
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ended = true; !s.begun {
		fail(s.writer, err)
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
