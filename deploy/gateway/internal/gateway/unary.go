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

// prepared notes the route for the log. Of a unary route it reads and checks the request, because the generated handlers
// would make a bare text of what is wrong with it, and then gives them one that they cannot refuse.
func (g *gateway) prepared(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		path := "unknown"
		if pattern, ok := runtime.HTTPPattern(request.Context()); ok {
			path = pattern.String()
		}
		if line, ok := w.(*logLine); ok {
			line.route = path
		}
		r, ok := g.routes[request.Method+" "+path]
		if !ok || !r.isUnary() {
			next(w, request, inPath)
			return
		}
		body, err := readRequest(w, request, r, inPath, r.newRequest())
		if err != nil {
			fail(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(request.Context(), unaryTimeout)
		defer cancel()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(unaryTimeout + g.settings.SlowReader))
		next(w, checked(request.WithContext(ctx), body), inPath)
	}
}

// checked is the request as the generated handlers get it: no header but the ones that went into its metadata.
func checked(request *http.Request, body []byte) *http.Request {
	found, _ := jsonform.ParseQuery(request.URL.RawQuery)
	values := url.Values{}
	for _, parameter := range found {
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

// wrapped is an answer that is in its envelope already (see rewrite).
type wrapped []byte

func (marshaler) Marshal(v any) ([]byte, error) { return v.(wrapped), nil }

func (marshaler) Unmarshal(data []byte, v any) error { return jsonform.Decode(data, v.(proto.Message)) }

func (m marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(r) // what `checked` has put there
		if err != nil {
			return err
		}
		return m.Unmarshal(data, v)
	})
}

func (marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		_, err := w.Write(v.(wrapped))
		return err
	})
}

func (marshaler) ContentType(any) string { return envelope.ContentType }

// rewrite puts an RPC's answer into the envelope. `data` is the field that the annotation names.
func rewrite(all []route) runtime.ForwardResponseRewriter {
	fields := map[string]string{}
	for _, r := range all {
		fields[r.grpcPath()] = r.responseBody
	}
	return func(ctx context.Context, response proto.Message) (any, error) {
		// A generated wrapper for response_body reflects as the response that it holds.
		whole := response.ProtoReflect().Interface()
		rpc, _ := runtime.RPCMethod(ctx)
		field := fields[rpc]
		if view, ok := whole.(*headracev1.GetViewportResponse); ok && view.View != nil {
			field = "view" // a view that is JSON is the data itself
		}
		return wrapped(envelope.Success(whole, field)), nil
	}
}

// parameters reads query parameters as strictly as bodies.
type parameters struct{}

func (parameters) Parse(message proto.Message, values url.Values, _ *utilities.DoubleArray) error {
	var found []jsonform.Parameter
	for name, all := range values {
		for _, value := range all {
			found = append(found, jsonform.Parameter{Name: name, Value: value})
		}
	}
	return jsonform.DecodeQuery(found, message)
}
