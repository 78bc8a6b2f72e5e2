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
	// uploadBytesMax is the largest file of any type, with its form.
	uploadBytesMax = 51 << 20
	// chatIDHeader has the file's chat, for whoever reads only the reference in the answer's `data`.
	chatIDHeader = "X-Chat-Id"
	// uploadTimeout limits a whole upload, as in the tools service.
	uploadTimeout = 10 * time.Minute
	// pieceBytes is the size of a message between the services; UploadFile accepts 1 MiB.
	pieceBytes = 256 << 10
)

// uploadFile forwards a form's file as a client stream, piece by piece, without holding it. The parts of a form come in
// any order, so the message that names the file is sent last.
func (g *gateway) uploadFile(r route) runtime.HandlerFunc {
	conn, method := g.connFor(r), r.grpcPath()
	return func(w http.ResponseWriter, request *http.Request, _ map[string]string) {
		form, err := openForm(w, request)
		if err != nil {
			writeError(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(request.Context(), uploadTimeout)
		defer cancel() // a client that leaves midway must not look like the end of the file
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTimeout))
		call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
		if err != nil {
			writeError(w, err)
			return
		}
		reply := new(headracev1.UploadFileResponse)
		if err := sendForm(form, call); err != nil && !errors.Is(err, io.EOF) {
			writeError(w, err)
		} else if err := call.RecvMsg(reply); err != nil { // after io.EOF this returns the error that ended the call
			writeError(w, err)
		} else {
			w.Header().Set(chatIDHeader, reply.GetChatId())
			envelope.WriteJSON(w, http.StatusOK, envelope.WrapResponse(reply, r.responseBody))
		}
	}
}

// openForm returns the form in a request.
func openForm(w http.ResponseWriter, request *http.Request) (*form, error) {
	kind, parameters, _ := mime.ParseMediaType(request.Header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		return nil, &jsonform.Invalid{Field: "Content-Type", Rule: "must be multipart/form-data"}
	}
	if err := checkCoding(request); err != nil {
		return nil, err
	}
	if request.ContentLength > uploadBytesMax {
		return nil, bodyTooLarge(uploadBytesMax)
	}
	if parameters["boundary"] == "" {
		return nil, errInvalidForm
	}
	body := http.MaxBytesReader(w, request.Body, uploadBytesMax)
	return &form{multipart.NewReader(body, parameters["boundary"])}, nil
}

// sendForm sends the parts of a form; it returns io.EOF when the call has ended early.
func sendForm(form *form, call grpc.ClientStream) error {
	var name *string
	var fields []jsonform.Parameter
	for {
		part, err := form.nextPart()
		if err != nil {
			return err
		}
		if part == nil {
			break
		}
		if part.name != "file" {
			text, err := part.readText()
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
	start, err := buildUploadStart(name, fields)
	if err != nil {
		return err
	}
	message := &headracev1.UploadFileRequest{Part: &headracev1.UploadFileRequest_Start{Start: start}}
	if err := call.SendMsg(message); err != nil {
		return err
	}
	return call.CloseSend()
}

// buildUploadStart returns the message that names the file.
func buildUploadStart(name *string, fields []jsonform.Parameter) (*headracev1.UploadStart, error) {
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
		count, isLast, err := part.readData(data)
		if err != nil {
			return err
		}
		if isEnd = isLast; count == 0 {
			continue
		}
		message := &headracev1.UploadFileRequest{Part: &headracev1.UploadFileRequest_Data{Data: data[:count]}}
		if err := call.SendMsg(message); err != nil {
			return err
		}
	}
	return nil
}
