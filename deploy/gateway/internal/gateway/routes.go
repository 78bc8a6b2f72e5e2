package gateway

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// route is an HTTP method and path with the RPC that it calls, read from the annotations of the protos.
type route struct {
	verb    string
	path    string
	rpc     protoreflect.MethodDescriptor
	hasBody bool
	// responseBody is the response field that becomes `data`; empty stands for the whole response.
	responseBody string
}

// isUnary reports whether request and answer are one message each, as JSON.
func (r route) isUnary() bool {
	return !r.rpc.IsStreamingServer() && !r.rpc.IsStreamingClient() && !r.isHook()
}

// isHook reports whether the body is passed on as it is, proven by a signature in the headers instead of a credential.
func (r route) isHook() bool { return isMessage(r.rpc.Input(), &headracev1.ReceiveWebhookRequest{}) }

// isStreamOfEvents reports whether the answer is Server-Sent Events.
func (r route) isStreamOfEvents() bool {
	return r.rpc.IsStreamingServer() && !r.rpc.IsStreamingClient() && isMessage(r.rpc.Output(), &headracev1.AgentDelta{})
}

// isWatch reports whether the answer is a stream of messages that are no events of a run.
func (r route) isWatch() bool {
	return r.rpc.IsStreamingServer() && !r.rpc.IsStreamingClient() && !r.isFile() && !r.isArchive() && !r.isStreamOfEvents()
}

// isUpload reports whether the request is a form with a file.
func (r route) isUpload() bool { return isMessage(r.rpc.Input(), &headracev1.UploadFileRequest{}) }

// isFile reports whether the answer is a file's bytes.
func (r route) isFile() bool { return isMessage(r.rpc.Output(), &headracev1.ReadFileResponse{}) }

// isArchive reports whether the answer is the bytes of a file that is made while it is sent.
func (r route) isArchive() bool { return isMessage(r.rpc.Output(), &headracev1.ExportDataResponse{}) }

// pattern returns the path as grpc-gateway spells it.
func (r route) pattern() string { return inPath.ReplaceAllString(r.path, "{$1=*}") }

var inPath = regexp.MustCompile(`\{(\w+)\}`)

// matches reports whether a request's path is of this route, whatever its method.
func (r route) matches(path string) bool {
	given, own := strings.Split(path, "/"), strings.Split(r.path, "/")
	return slices.EqualFunc(given, own, func(part, pattern string) bool {
		return part == pattern || (part != "" && inPath.MatchString(pattern))
	})
}

// grpcPath returns the RPC's name on the wire.
func (r route) grpcPath() string {
	return "/" + string(r.rpc.Parent().FullName()) + "/" + string(r.rpc.Name())
}

// newRequest returns an empty message of the RPC's request type.
func (r route) newRequest() proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(r.rpc.Input().FullName())
	if err != nil {
		panic(err) // generated code registers its types
	}
	return kind.New().Interface()
}

// newReply returns an empty message of the RPC's reply type.
func (r route) newReply() proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(r.rpc.Output().FullName())
	if err != nil {
		panic(err) // generated code registers its types
	}
	return kind.New().Interface()
}

func isMessage(kind protoreflect.MessageDescriptor, message proto.Message) bool {
	return kind.FullName() == message.ProtoReflect().Descriptor().FullName()
}

// listRoutes returns all routes of the contract.
func listRoutes() []route {
	var result []route
	for _, file := range []protoreflect.FileDescriptor{
		headracev1.File_headrace_v1_agent_proto,
		headracev1.File_headrace_v1_audit_proto,
		headracev1.File_headrace_v1_data_proto,
		headracev1.File_headrace_v1_gates_proto,
		headracev1.File_headrace_v1_keys_proto,
		headracev1.File_headrace_v1_memory_proto,
		headracev1.File_headrace_v1_operator_proto,
		headracev1.File_headrace_v1_schedule_proto,
		headracev1.File_headrace_v1_spend_proto,
		headracev1.File_headrace_v1_tools_proto,
		headracev1.File_headrace_v1_webhook_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				result = append(result, listBindings(methods.Get(j))...)
			}
		}
	}
	return result
}

func listBindings(rpc protoreflect.MethodDescriptor) []route {
	rule, _ := proto.GetExtension(rpc.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule.GetPattern() == nil {
		return nil
	}
	var result []route
	for _, binding := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		verb, path := methodAndPath(binding)
		result = append(result, route{verb, path, rpc, binding.GetBody() == "*", binding.GetResponseBody()})
	}
	return result
}

func methodAndPath(rule *annotations.HttpRule) (verb, path string) {
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
