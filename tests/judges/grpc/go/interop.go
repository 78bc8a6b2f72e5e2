package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// caseTimeout bounds a case, on a busy machine too.
const caseTimeout = 60 * time.Second

// call ends the process with 1 where the case fails: interop's functions do.
func call(address, name string, creds credentials.TransportCredentials) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	conn := dial(address, creds)
	defer conn.Close()
	client := testgrpc.NewTestServiceClient(conn)
	switch name {
	case "empty_unary":
		interop.DoEmptyUnaryCall(ctx, client)
	case "large_unary":
		interop.DoLargeUnaryCall(ctx, client)
	case "client_streaming":
		interop.DoClientStreaming(ctx, client)
	case "server_streaming":
		interop.DoServerStreaming(ctx, client)
	case "ping_pong":
		interop.DoPingPong(ctx, client)
	case "empty_stream":
		interop.DoEmptyStream(ctx, client)
	case "timeout_on_sleeping_server":
		interop.DoTimeoutOnSleepingServer(ctx, client)
	case "cancel_after_begin":
		interop.DoCancelAfterBegin(ctx, client)
	case "cancel_after_first_response":
		interop.DoCancelAfterFirstResponse(ctx, client)
	case "status_code_and_message":
		interop.DoStatusCodeAndMessage(ctx, client)
	case "special_status_message":
		interop.DoSpecialStatusMessage(ctx, client)
	case "custom_metadata":
		interop.DoCustomMetadata(ctx, client)
	case "unimplemented_method":
		interop.DoUnimplementedMethod(ctx, conn)
	case "unimplemented_service":
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
	case "rpc_soak":
		soak(ctx, address, func() (*grpc.ClientConn, func()) { return conn, func() {} })
	case "channel_soak":
		soak(ctx, address, func() (*grpc.ClientConn, func()) {
			conn := dial(address, creds)
			return conn, func() { conn.Close() }
		})
	default:
		fail("no such case: " + name)
	}
}

// soak makes calls as large as those of large_unary, by two workers.
func soak(ctx context.Context, address string, channel func() (*grpc.ClientConn, func())) {
	interop.DoSoakTest(ctx, interop.SoakTestConfig{
		RequestSize:                      271828,
		ResponseSize:                     314159,
		PerIterationMaxAcceptableLatency: caseTimeout,
		OverallTimeout:                   caseTimeout,
		ServerAddr:                       address,
		NumWorkers:                       2,
		Iterations:                       20,
		ChannelForTest:                   channel,
	})
}

// dial opens a channel with grpc-go's default options.
func dial(address string, creds credentials.TransportCredentials) *grpc.ClientConn {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	must(err)
	return conn
}

func serve(creds credentials.TransportCredentials) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	server := grpc.NewServer(grpc.Creds(creds))
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	fmt.Println(listener.Addr())
	must(server.Serve(listener))
}
