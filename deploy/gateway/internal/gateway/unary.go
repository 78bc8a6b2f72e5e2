package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
)

// checkRequest notes the route for the log. It reads and checks the request of a unary route first, because the
// generated handlers would report its errors as bare text, and passes on one that they cannot refuse.
func (g *gateway) checkRequest(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		path := "unknown"
		if pattern, ok := runtime.HTTPPattern(request.Context()); ok {
			path = pattern.String()
		}
		if entry, ok := w.(*requestLog); ok {
			entry.route = path
		}
		r, ok := g.routes[request.Method+" "+path]
		if !ok || !r.isUnary() {
			next(w, request, inPath)
			return
		}
		body, err := readRequest(w, request, r, inPath, r.newRequest())
		if err != nil {
			writeError(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(request.Context(), unaryTimeout)
		defer cancel()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(unaryTimeout + g.settings.SlowReader))
		next(w, rebuildRequest(request.WithContext(ctx), body), inPath)
	}
}

// rebuildRequest returns the request for the generated handlers, without the headers, which are in the metadata
// already.
func rebuildRequest(request *http.Request, body []byte) *http.Request {
	result, _ := jsonform.ParseQuery(request.URL.RawQuery)
	values := url.Values{}
	for _, parameter := range result {
		values.Add(parameter.Name, parameter.Value)
	}
	address := *request.URL
	address.RawQuery = values.Encode()
	request.URL, request.Header = &address, http.Header{}
	request.Body = io.NopCloser(bytes.NewReader(body))
	return request
}

// marshaler gives grpc-gateway the contract's JSON form, inside the envelope.
type marshaler struct{}

// envelopeBytes is an answer that is in its envelope already (see wrapResponses).
type envelopeBytes []byte

func (marshaler) Marshal(v any) ([]byte, error) { return v.(envelopeBytes), nil }

func (marshaler) Unmarshal(data []byte, v any) error { return jsonform.Decode(data, v.(proto.Message)) }

func (m marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(r) // the body that rebuildRequest has set
		if err != nil {
			return err
		}
		return m.Unmarshal(data, v)
	})
}

func (marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		_, err := w.Write(v.(envelopeBytes))
		return err
	})
}

func (marshaler) ContentType(any) string { return envelope.ContentType }

// wrapResponses puts an RPC's response into the envelope; `data` is the field that the annotation names.
func wrapResponses(all []route) runtime.ForwardResponseRewriter {
	fields := map[string]string{}
	for _, r := range all {
		fields[r.grpcPath()] = r.responseBody
	}
	return func(ctx context.Context, response proto.Message) (any, error) {
		// A generated wrapper for response_body reflects as the response inside it.
		whole := response.ProtoReflect().Interface()
		rpc, _ := runtime.RPCMethod(ctx)
		field := fields[rpc]
		if view, ok := whole.(*headracev1.GetViewportResponse); ok && view.View != nil {
			field = "view" // a JSON view is the data itself
		}
		return envelopeBytes(envelope.WrapResponse(whole, field)), nil
	}
}

// queryParser reads query parameters as strictly as bodies.
type queryParser struct{}

func (queryParser) Parse(message proto.Message, values url.Values, _ *utilities.DoubleArray) error {
	var result []jsonform.Parameter
	for name, all := range values {
		for _, value := range all {
			result = append(result, jsonform.Parameter{Name: name, Value: value})
		}
	}
	return jsonform.DecodeQuery(result, message)
}
