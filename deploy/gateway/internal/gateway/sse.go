package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
)

const (
	credentialEnded = "CREDENTIAL_ENDED"
	// writeBytesMax is what a client must take in the time of a write.
	writeBytesMax = 64 << 10
)

var (
	heartbeat = []byte(": heartbeat\n\n")
	done      = []byte("data: [DONE]\n\n")
)

// sse writes one stream: a frame for each event, flushed at once, and a comment after each silence.
//
// The answer begins with the first event or the first heartbeat: an earlier failure is a JSON answer with its status,
// and a failure between the two is an event of its own (stream_errors.go). A stream that breaks after its first event
// ends without [DONE], and the caller attaches again after its last id. One goroutine, the request's own, reads and
// writes; heartbeats are written by a timer.
type sse struct {
	writer       http.ResponseWriter
	request      proto.Message
	control      *http.ResponseController
	interval     time.Duration
	writeTimeout time.Duration
	heartbeats   *time.Timer

	mutex    sync.Mutex
	hasBegun bool
	hasEnded bool
	frame    []byte
}

func newSSE(w http.ResponseWriter, request proto.Message, settings Settings) *sse {
	s := &sse{
		writer: w, request: request, control: http.NewResponseController(w),
		interval: settings.Heartbeat, writeTimeout: settings.SlowReader,
	}
	s.mutex.Lock() // the first heartbeat may fire before the timer is stored
	defer s.mutex.Unlock()
	s.heartbeats = time.AfterFunc(s.interval, func() { _ = s.writeFrame(heartbeat) })
	return s
}

// copyEvents writes the events of a call until its run or the call ends, or the client leaves, which ends ctx.
func (s *sse) copyEvents(ctx context.Context, call grpc.ClientStream) {
	for first := true; ; first = false {
		delta := new(headracev1.AgentDelta)
		if err := call.RecvMsg(delta); err != nil {
			s.finishCall(ctx, err, first)
			return
		}
		if isLast, err := s.writeEvent(delta); isLast || err != nil {
			return
		}
	}
}

func (s *sse) writeEvent(delta *headracev1.AgentDelta) (isLast bool, err error) {
	event, ok := jsonform.EncodeEvent(delta)
	if !ok {
		return false, nil
	}
	s.frame = appendFrame(s.frame[:0], event)
	return event.IsTerminal, s.writeFrame(s.frame)
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

// finishCall handles the end of a call. If there was no event, either the caller attached after the last one, or the
// error is the answer if the caller is still connected.
func (s *sse) finishCall(ctx context.Context, err error, isFirst bool) {
	if errors.Is(err, io.EOF) {
		if isFirst {
			_ = s.writeFrame(done)
		} else {
			interruptedFailure.Record(s.writer)
		}
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.hasEnded = true; !s.hasBegun {
		writeError(s.writer, err)
		return
	}
	failure := envelope.FromError(err)
	failure.Record(s.writer)
	if s.tellOfEnd(failure) || !isFirst || ctx.Err() != nil {
		return
	}
	if event, ok := jsonform.EncodeEvent(buildRunError(s.request, failure)); ok {
		_ = s.writeLocked(appendFrame(nil, event))
	}
}

// tellOfEnd ends a stream with the failure when the caller's key has ended, which is no event of a run: that may go on.
// The caller holds the mutex.
func (s *sse) tellOfEnd(failure envelope.Failure) bool {
	if failure.Reason != credentialEnded {
		return false
	}
	_ = s.writeLocked(append(append([]byte("event: error\ndata: "), failure.Encode()...), "\n\n"...))
	return true
}

// writeFrame sends a whole frame and flushes it. The connection of a client that reads too slowly is closed; its run
// goes on.
func (s *sse) writeFrame(frame []byte) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.hasEnded {
		return http.ErrHandlerTimeout
	}
	if !s.hasBegun {
		s.writeHeader()
	}
	s.heartbeats.Reset(s.interval)
	return s.writeLocked(frame)
}

// writeLocked writes a frame, a large one in pieces, each of which has its time; the caller holds the mutex.
func (s *sse) writeLocked(frame []byte) error {
	for piece := range slices.Chunk(frame, writeBytesMax) {
		_ = s.control.SetWriteDeadline(time.Now().Add(s.writeTimeout))
		if _, err := s.writer.Write(piece); err != nil {
			return err
		}
	}
	return s.control.Flush()
}

func (s *sse) writeHeader() {
	s.hasBegun = true
	header := s.writer.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	s.writer.WriteHeader(http.StatusOK)
}

// stop ends the heartbeats; none is being written when it returns.
func (s *sse) stop() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.hasEnded = true
	s.heartbeats.Stop()
}
