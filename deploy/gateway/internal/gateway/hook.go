package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
)

const (
	// payloadBytesMax is the largest payload of a hook.
	payloadBytesMax = 64 << 10
	// payloadTimeout limits reading it, because anybody may send one.
	payloadTimeout = 10 * time.Second
)

// receiveWebhook passes on what another system posts, with its proof; memory checks it.
func (g *gateway) receiveWebhook(r route) runtime.HandlerFunc {
	conn, method := g.connFor(r), r.grpcPath()
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		message := &headracev1.ReceiveWebhookRequest{ScheduleId: cleanText(inPath["schedule_id"])}
		for name, field := range map[string]*string{
			"Webhook-Id": &message.WebhookId, "Webhook-Timestamp": &message.Timestamp, "Webhook-Signature": &message.Signature,
		} {
			if err := requireSingleHeader(request, name); err != nil {
				writeError(w, err)
				return
			}
			*field = cleanText(request.Header.Get(name))
		}
		var err error
		if message.Payload, err = readBody(w, request, payloadBytesMax, payloadTimeout); err != nil {
			writeError(w, err)
			return
		}
		ctx, cancel := context.WithTimeout(request.Context(), unaryTimeout)
		defer cancel()
		reply := new(headracev1.ReceiveWebhookResponse)
		if err := conn.Invoke(ctx, method, message, reply); err != nil {
			writeError(w, err)
			return
		}
		envelope.WriteJSON(w, http.StatusOK, envelope.WrapResponse(reply, r.responseBody))
	}
}

// cleanText returns the text, or an empty one, which proves nothing, for what no valid one has in it.
func cleanText(text string) string {
	for _, one := range []byte(text) {
		if one >= 0x80 {
			return ""
		}
	}
	return text
}
