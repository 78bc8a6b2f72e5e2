package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

type outcome struct {
	Messages int     `json:"messages"`
	Code     int     `json:"code"`
	Details  string  `json:"details"`
	Seconds  float64 `json:"seconds"`
}

// load reads all streams beside each other, over one connection with grpc-go's default options.
func load(address, descriptors, path, request, streams string) {
	count, err := strconv.Atoi(streams)
	must(err)
	method := findMethod(descriptors, path)
	message := dynamicpb.NewMessage(method.Input())
	must(protojson.Unmarshal([]byte(request), message))
	conn := dial(address, insecure.NewCredentials())
	defer conn.Close()
	lines := json.NewEncoder(os.Stdout)
	var printing sync.Mutex
	var reading sync.WaitGroup
	for range count {
		reading.Go(func() {
			read := readStream(conn, path, method.Output(), message)
			printing.Lock()
			defer printing.Unlock()
			must(lines.Encode(read))
		})
	}
	reading.Wait()
}

func findMethod(descriptors, path string) protoreflect.MethodDescriptor {
	written, err := os.ReadFile(descriptors)
	must(err)
	set := &descriptorpb.FileDescriptorSet{}
	must(proto.Unmarshal(written, set))
	files, err := protodesc.NewFiles(set)
	must(err)
	name := strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", ".")
	found, err := files.FindDescriptorByName(protoreflect.FullName(name))
	must(err)
	return found.(protoreflect.MethodDescriptor)
}

func readStream(conn *grpc.ClientConn, path string, answer protoreflect.MessageDescriptor, request proto.Message) outcome {
	begun := time.Now()
	read, err := countMessages(conn, path, answer, request)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	said := status.Convert(err)
	return outcome{read, int(said.Code()), said.Message(), time.Since(begun).Seconds()}
}

func countMessages(conn *grpc.ClientConn, path string, answer protoreflect.MessageDescriptor, request proto.Message) (int, error) {
	stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return 0, err
	}
	if err := stream.SendMsg(request); err != nil {
		return 0, err
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	for read := 0; ; read++ {
		if err := stream.RecvMsg(dynamicpb.NewMessage(answer)); err != nil {
			return read, err
		}
	}
}
