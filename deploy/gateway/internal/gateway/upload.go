package gateway

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
)

const (
	// uploadBytesMax is the largest file that any type may have, and its form.
	uploadBytesMax = 51 << 20
	// uploadTimeout is for a whole upload, as the tools service has it.
	uploadTimeout = 10 * time.Minute
	// pieceBytes is a message between the services; UploadFile takes 1 MiB.
	pieceBytes = 256 << 10
)

// upload passes a form's file on as a client stream, piece by piece; the gateway never holds it. The parts of a form
// come in any order, so what names the file is sent last.
func (g *gateway) upload(r route) runtime.HandlerFunc {
	conn, method := g.connOf(r), r.grpcPath()
	return func(w http.ResponseWriter, request *http.Request, _ map[string]string) {
		form, err := formOf(w, request)
		if err != nil {
			fail(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(request.Context(), uploadTimeout)
		defer cancel() // a caller who has gone in the middle must not look like the end of the file
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTimeout))
		call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
		if err != nil {
			fail(w, err)
			return
		}
		reply := new(headracev1.UploadFileResponse)
		if err := sendForm(form, call); err != nil && !errors.Is(err, io.EOF) {
			fail(w, err)
		} else if err := call.RecvMsg(reply); err != nil { // io.EOF: the call has ended, with an error then
			fail(w, err)
		} else {
			envelope.WriteJSON(w, http.StatusOK, envelope.Success(reply, r.responseBody))
		}
	}
}

// formOf gives the form that a request holds.
func formOf(w http.ResponseWriter, request *http.Request) (*form, error) {
	kind, parameters, _ := mime.ParseMediaType(request.Header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		return nil, &jsonform.Invalid{Field: "Content-Type", Rule: "must be multipart/form-data"}
	}
	if err := checkCoding(request); err != nil {
		return nil, err
	}
	if request.ContentLength > uploadBytesMax {
		return nil, tooLarge(uploadBytesMax)
	}
	if parameters["boundary"] == "" {
		return nil, errForm
	}
	body := http.MaxBytesReader(w, request.Body, uploadBytesMax)
	return &form{multipart.NewReader(body, parameters["boundary"])}, nil
}

// sendForm sends what the form holds; io.EOF when the call has ended before.
func sendForm(form *form, call grpc.ClientStream) error {
	var name *string
	var fields []jsonform.Parameter
	for {
		part, err := form.next()
		if err != nil {
			return err
		}
		if part == nil {
			break
		}
		if part.name != "file" {
			text, err := part.text()
			if err != nil {
				return err
			}
			fields = append(fields, jsonform.Parameter{Name: part.name, Value: text})
			continue
		}
		if name != nil {
			return &jsonform.Invalid{Field: "file", Rule: "must be given once"}
		}
		name = &part.fileName
		if err := sendFile(part, call); err != nil {
			return err
		}
	}
	start, err := startOf(name, fields)
	if err != nil {
		return err
	}
	message := &headracev1.UploadFileRequest{Part: &headracev1.UploadFileRequest_Start{Start: start}}
	if err := call.SendMsg(message); err != nil {
		return err
	}
	return call.CloseSend()
}

// startOf gives the message that names the file.
func startOf(name *string, fields []jsonform.Parameter) (*headracev1.UploadStart, error) {
	if name == nil {
		return nil, &jsonform.Invalid{Field: "file", Rule: "is required"}
	}
	start := new(headracev1.UploadStart)
	isNamed := false
	for _, field := range fields {
		isNamed = isNamed || field.Name == "name"
	}
	if !isNamed {
		fields = append(fields, jsonform.Parameter{Name: "name", Value: *name})
	}
	return start, jsonform.DecodeQuery(fields, start)
}

func sendFile(part *part, call grpc.ClientStream) error {
	for isEnd := false; !isEnd; {
		data := make([]byte, pieceBytes) // gRPC may keep a message that was sent
		count, ended, err := part.read(data)
		if err != nil {
			return err
		}
		if isEnd = ended; count == 0 {
			continue
		}
		message := &headracev1.UploadFileRequest{Part: &headracev1.UploadFileRequest_Data{Data: data[:count]}}
		if err := call.SendMsg(message); err != nil {
			return err
		}
	}
	return nil
}
