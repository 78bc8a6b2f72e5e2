// What grpc-go's authors hold an implementation against, and grpc-go's client under load:
//
//	judge client ADDRESS CASE      call a server as grpc-go's interop client does; ends with 1 where the case fails
//	judge serve                    be grpc-go's interop server, and print its address
//	judge messages                 write the descriptors of grpc.testing.TestService
//	judge load ADDRESS DESCRIPTORS METHOD REQUEST STREAMS
//	                               read streams of one connection to their ends; prints one line for each
package main

import (
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	switch words := os.Args[1:]; {
	case len(words) == 3 && words[0] == "client":
		call(words[1], words[2])
	case len(words) == 1 && words[0] == "serve":
		serve()
	case len(words) == 1 && words[0] == "messages":
		writeMessages()
	case len(words) == 6 && words[0] == "load":
		load(words[1], words[2], words[3], words[4], words[5])
	default:
		fail("usage: judge client|serve|messages|load …")
	}
}

func writeMessages() {
	file := testgrpc.File_grpc_testing_test_proto
	set := &descriptorpb.FileDescriptorSet{}
	for i := range file.Imports().Len() {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file.Imports().Get(i)))
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	written, err := proto.Marshal(set)
	must(err)
	_, err = os.Stdout.Write(written)
	must(err)
}

func must(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
