package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/jsonform"
)

type callKey struct{}

// call is a call of a service for a request. For a stream it is what the generated handler writes frames to, each flushed
// at once, with a comment after each silence.
//
// A stream begins with the first frame or heartbeat: an earlier failure is a JSON answer with its status, and a failure
// before the first frame is an event of its own. A stream that breaks later ends without [DONE], and the caller attaches
// again after its last id.
type call struct {
	*answer
	gateway *gateway
	route   route
	// original is the request with its body, for the embedded facade.
	original   *http.Request
	heartbeats *time.Timer

	mutex                        sync.Mutex
	hasBegun, hasFrame, hasEnded bool
}

// stream has the generated handler answer with frames.
func (c *call) stream(handle func()) {
	openStreams.Inc()
	defer openStreams.Dec()
	c.mutex.Lock() // the first heartbeat may fire before the timer is stored
	c.heartbeats = time.AfterFunc(c.gateway.settings.Heartbeat, func() { _, _ = c.Write([]byte(": heartbeat\n\n")) })
	c.mutex.Unlock()
	handle()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.heartbeats.Stop()
	if !c.hasFrame { // the caller attached after the last event
		_ = c.send([]byte(jsonform.Done))
	} else if !c.hasEnded {
		c.answer.status, c.reason = http.StatusConflict, "INTERRUPTED"
	}
	c.hasEnded = true
}

// Write sends a frame, if the stream has not ended.
func (c *call) Write(frame []byte) (int, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(frame), c.send(frame)
}

// WriteHeader and FlushError do nothing: send and fail have done it.
func (c *call) WriteHeader(int)   {}
func (c *call) FlushError() error { return nil }

// send writes a frame and flushes it; the caller holds the mutex.
func (c *call) send(frame []byte) error {
	if len(frame) == 0 || c.hasEnded {
		return nil
	}
	if !c.hasBegun {
		c.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		c.Header().Set("Cache-Control", "no-cache, no-transform")
		c.Header().Set("X-Accel-Buffering", "no")
		c.answer.WriteHeader(http.StatusOK)
	}
	c.hasBegun, c.hasEnded = true, bytes.HasSuffix(frame, []byte(jsonform.Done))
	c.hasFrame = c.hasFrame || frame[0] != ':'
	c.heartbeats.Reset(c.gateway.settings.Heartbeat)
	if _, err := c.answer.Write(frame); err != nil {
		return err
	}
	return c.control.Flush()
}

func handleError(
	ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error,
) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.fail(failureOf(err))
	} else if a, ok := w.(*answer); ok {
		failureOf(err).write(a)
	}
}

func handleStreamError(ctx context.Context, err error) *status.Status {
	ctx.Value(callKey{}).(*call).fail(failureOf(err))
	return status.Convert(err) // nothing writes it
}

// fail answers with a failure, or ends a stream that has begun. What a stopping replica refused is asked again by the
// embedded facade, which finds another replica.
func (c *call) fail(f failure) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	switch {
	case c.hasEnded:
		return
	case !c.hasBegun && f.isRefused:
		c.gateway.facade.ServeHTTP(c.answer, c.original)
	case !c.hasBegun:
		f.write(c.answer)
	case f.reason == "CREDENTIAL_ENDED": // which is no event of the run: that may continue
		_ = c.send([]byte("event: error\ndata: " + string(f.encode()) + "\n\n"))
	case !c.hasFrame && c.original.Context().Err() == nil:
		_ = c.send(c.encodeRunError(f))
	}
	if c.hasFrame, c.hasEnded = true, true; c.hasBegun {
		c.answer.status, c.reason = f.status, f.reason
	}
}

// encodeRunError returns the only event of a stream that fails before its first one. A query that fails then has no run
// that the caller could find, so every failure is sent. A stream of a known run sends only failures that attaching again
// cannot help.
func (c *call) encodeRunError(f failure) []byte {
	query := c.original.URL.Query()
	end := &headracev1.RunError{Usage: &headracev1.Usage{}, RunId: query.Get("runId"), Error: &headracev1.Failure{
		Code: f.reason, Message: f.message, Retriable: f.retriable,
	}}
	if end.RunId != "" && (f.retriable || !f.isOurs) {
		return nil
	}
	if len(f.details) > 0 {
		details, _ := json.Marshal(f.details) // a map of strings can always be encoded
		end.Error.Details = proto.String(string(details))
	}
	lastSeq, _ := strconv.ParseUint(query.Get("lastSeq"), 10, 64) // the service has seen it
	return jsonform.Frame(&headracev1.AgentDelta{
		Seq: min(lastSeq, math.MaxUint64-1) + 1, Timestamp: time.Now().UnixMilli(),
		Payload: &headracev1.AgentDelta_RunError{RunError: end},
	})
}

// encoded is an answer or a frame as it is sent.
type encoded []byte

// encodeResponse makes a frame of an event, and puts any other response into the envelope; `data` is the field that the
// annotation names.
func encodeResponse(ctx context.Context, response proto.Message) (any, error) {
	if delta, isEvent := response.(*headracev1.AgentDelta); isEvent {
		return encoded(jsonform.Frame(delta)), nil
	}
	// A generated wrapper for response_body reflects as the response inside it.
	whole, field := response.ProtoReflect().Interface(), ctx.Value(callKey{}).(*call).route.responseBody
	if view, ok := whole.(*headracev1.GetViewportResponse); ok && view.View != nil {
		field = "view" // a JSON view is the data itself
	}
	data, others := jsonform.Split(whole, field)
	out := append([]byte(`{"code":0,"msg":"success",`), others...)
	return encoded(append(append(append(out, `"data":`...), data...), '}')), nil
}

// marshaler gives grpc-gateway the contract's JSON form.
type marshaler struct{ runtime.JSONPb }

func (marshaler) Marshal(v any) ([]byte, error) {
	if chunk, isFrame := v.(map[string]any); isFrame {
		v = chunk["result"]
	}
	answer, _ := v.(encoded) // the failure of a stream has been written
	return answer, nil
}

func (marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		body, err := io.ReadAll(r)
		return errors.Join(err, jsonform.Decode(body, v.(proto.Message)))
	})
}

func (marshaler) ContentType(any) string { return "application/json; charset=utf-8" }

// Delimiter is empty: a frame has its own end.
func (marshaler) Delimiter() []byte { return nil }
