// Ask an agent over gRPC, read its events as they come, attach again when the stream is cut; or cancel at the first word.
//
//	go run . 127.0.0.1:7001 assistant "What is the weather in Paris?"
//	go run . 127.0.0.1:7001 writer "A long story" cancel
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	headrace "headrace/v1"
)

func main() {
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	agents := headrace.NewAgentServiceClient(connection)
	cancel := len(os.Args) > 4 && os.Args[4] == "cancel"
	state, err := ask(context.Background(), agents, os.Args[2], os.Args[3], cancel)
	if err != nil {
		panic(err)
	}
	fmt.Println("answer:", state.Answer())
	switch end := state.End.GetPayload().(type) {
	case *headrace.AgentDelta_RunComplete:
		fmt.Println("end: complete,", end.RunComplete.GetFinishReason())
	case *headrace.AgentDelta_RunCancel:
		fmt.Println("end: cancelled")
	case *headrace.AgentDelta_RunError:
		fmt.Println("end: failed,", end.RunError.GetError().GetMessage())
	}
}

// ask reads a run to its end.
func ask(ctx context.Context, agents headrace.AgentServiceClient, agent, message string, cancel bool) (*Fold, error) {
	state := &Fold{}
	stream, err := agents.Query(ctx, &headrace.QueryRequest{Message: message, AgentKey: &agent})
	for err == nil {
		if err = read(ctx, agents, stream, state, cancel); err != nil && (status.Code(err) != codes.Unavailable || state.RunID == "") {
			break
		}
		if state.End != nil {
			return state, nil
		}
		// The stream was cut or the server restarts, and the run goes on: read on behind what was read.
		time.Sleep(time.Second)
		stream, err = agents.Attach(ctx, &headrace.AttachRequest{RunId: state.RunID, LastSeq: state.LastSeq})
	}
	return state, err
}

// read folds a stream's events, to its end.
func read(
	ctx context.Context,
	agents headrace.AgentServiceClient,
	stream grpc.ServerStreamingClient[headrace.AgentDelta],
	state *Fold,
	cancel bool,
) error {
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		state.Apply(event)
		if cancel && event.GetContentDelta() != nil {
			cancel = false
			if _, err := agents.Cancel(ctx, &headrace.CancelRequest{RunId: state.RunID}); err != nil {
				return err
			}
		}
	}
}
