package gateway

import (
	"net/http"
	"regexp"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// route is one HTTP method and path, and the RPC it calls, read from the annotations of the protos.
type route struct {
	verb    string
	path    string
	rpc     protoreflect.MethodDescriptor
	hasBody bool
	// the response field that becomes `data`; empty: the whole response
	responseBody string
}

func (r route) isUnary() bool { return !r.rpc.IsStreamingServer() && !r.rpc.IsStreamingClient() }

// isStreamOfEvents tells whether the answer is Server-Sent Events.
func (r route) isStreamOfEvents() bool {
	return r.rpc.IsStreamingServer() && !r.rpc.IsStreamingClient() && is(r.rpc.Output(), &headracev1.AgentDelta{})
}

// isUpload tells whether the request is a form with a file.
func (r route) isUpload() bool { return is(r.rpc.Input(), &headracev1.UploadFileRequest{}) }

// isFile tells whether the answer is a file's bytes.
func (r route) isFile() bool { return is(r.rpc.Output(), &headracev1.ReadFileResponse{}) }

// pattern is the path as grpc-gateway spells it.
func (r route) pattern() string { return inPath.ReplaceAllString(r.path, "{$1=*}") }

var inPath = regexp.MustCompile(`\{(\w+)\}`)

// grpcPath is the RPC's name on the wire.
func (r route) grpcPath() string {
	return "/" + string(r.rpc.Parent().FullName()) + "/" + string(r.rpc.Name())
}

// newRequest gives an empty message of the RPC's request type.
func (r route) newRequest() proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(r.rpc.Input().FullName())
	if err != nil {
		panic(err) // generated code registers its types
	}
	return kind.New().Interface()
}

func is(kind protoreflect.MessageDescriptor, message proto.Message) bool {
	return kind.FullName() == message.ProtoReflect().Descriptor().FullName()
}

// routes gives all routes of the contract.
func routes() []route {
	var found []route
	for _, file := range []protoreflect.FileDescriptor{
		headracev1.File_headrace_v1_agent_proto,
		headracev1.File_headrace_v1_memory_proto,
		headracev1.File_headrace_v1_tools_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				found = append(found, routesOf(methods.Get(j))...)
			}
		}
	}
	return found
}

func routesOf(rpc protoreflect.MethodDescriptor) []route {
	rule, _ := proto.GetExtension(rpc.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule.GetPattern() == nil {
		return nil
	}
	var found []route
	for _, binding := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		verb, path := verbAndPath(binding)
		found = append(found, route{verb, path, rpc, binding.GetBody() == "*", binding.GetResponseBody()})
	}
	return found
}

func verbAndPath(rule *annotations.HttpRule) (verb, path string) {
	switch rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, rule.GetGet()
	case *annotations.HttpRule_Post:
		return http.MethodPost, rule.GetPost()
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, rule.GetDelete()
	case *annotations.HttpRule_Put:
		return http.MethodPut, rule.GetPut()
	default:
		return http.MethodPatch, rule.GetPatch()
	}
}
