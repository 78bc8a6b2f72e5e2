package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// sendArchive answers with an archive that is made while it is sent. Its size is not known before, so that a client
// finds a cut by the connection, which is broken then, or by the manifest that is missing.
func (g *gateway) sendArchive(r route) runtime.HandlerFunc {
	conn, method := g.connFor(r), r.grpcPath()
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		message := new(headracev1.ExportDataRequest)
		if _, err := readRequest(w, request, r, inPath, message); err != nil {
			writeError(w, err)
			return
		}
		ctx, cancel := context.WithCancel(request.Context())
		defer cancel() // leaving in any way cancels the call
		call, err := openStream(ctx, conn, method, message)
		if err != nil {
			writeError(w, err)
			return
		}
		piece := new(headracev1.ExportDataResponse)
		if err := call.RecvMsg(piece); err != nil { // a refusal comes before any header
			writeError(w, err)
			return
		}
		header := w.Header()
		header.Set("Content-Type", "application/x-tar")
		header.Set("Content-Disposition", `attachment; filename="headrace-data.tar"`)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		control := http.NewResponseController(w)
		for {
			_ = control.SetWriteDeadline(time.Now().Add(g.settings.SlowReader))
			if _, err := w.Write(piece.GetData()); err != nil {
				return
			}
			piece = new(headracev1.ExportDataResponse)
			if err := call.RecvMsg(piece); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				panic(http.ErrAbortHandler) // the only way in which net/http breaks the connection
			}
		}
	}
}
