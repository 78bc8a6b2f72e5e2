// What grpc-go's authors hold an implementation against, and grpc-go's client under load:
//
//	judge client ADDRESS CASE [CERT KEY CA]
//	                               call a server as grpc-go's interop client does; ends with 1 where the case fails
//	judge serve [CERT KEY CA]      be grpc-go's interop server, and print its address
//	judge messages                 write the descriptors of grpc.testing.TestService
//	judge load ADDRESS DESCRIPTORS METHOD REQUEST STREAMS
//	                               read streams of one connection to their ends; prints one line for each
//
// With files in PEM both ends show their certificates by TLS.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	switch words := os.Args[1:]; {
	case len(words) == 3 && words[0] == "client":
		call(words[1], words[2], insecure.NewCredentials())
	case len(words) == 6 && words[0] == "client":
		call(words[1], words[2], readCertificates(words[3], words[4], words[5]))
	case len(words) == 1 && words[0] == "serve":
		serve(insecure.NewCredentials())
	case len(words) == 4 && words[0] == "serve":
		serve(readCertificates(words[1], words[2], words[3]))
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

// readCertificates is for either end: each shows its certificate, and asks for the other's.
func readCertificates(cert, key, ca string) credentials.TransportCredentials {
	own, err := tls.LoadX509KeyPair(cert, key)
	must(err)
	authority, err := os.ReadFile(ca)
	must(err)
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		fail("no certificate in " + ca)
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{own},
		RootCAs:      trusted,
		ClientCAs:    trusted,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	})
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
