package gateway

import (
	_ "embed"
	"net/http"

	"headrace/gateway/internal/envelope"
)

// openapiDocument is written by `make gen`; a test holds it against the contract.
//
//go:embed openapi.json
var openapiDocument []byte

func serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
	envelope.WriteJSON(w, http.StatusOK, openapiDocument)
}
