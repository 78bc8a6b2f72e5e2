// Bifrost's core behind net/http: `bifrost UPSTREAM` prints its URL and passes each chat completion on as it comes.
// UPSTREAM is a base URL that ends in /v1.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"

	bifrost "github.com/maximhq/bifrost/core"
	"github.com/maximhq/bifrost/core/schemas"
)

type account struct{ upstream string }

func (account) GetConfiguredProviders() ([]schemas.ModelProvider, error) {
	return []schemas.ModelProvider{schemas.OpenAI}, nil
}

func (account) GetKeysForProvider(context.Context, schemas.ModelProvider) ([]schemas.Key, error) {
	return []schemas.Key{{ID: "1", Value: *schemas.NewEnvVar("none"), Models: schemas.WhiteList{"*"}, Weight: 1}}, nil
}

func (a account) GetConfigForProvider(schemas.ModelProvider) (*schemas.ProviderConfig, error) {
	config := &schemas.ProviderConfig{NetworkConfig: schemas.NetworkConfig{BaseURL: a.upstream}}
	config.CheckAndSetDefaults()
	return config, nil
}

func main() {
	client, err := bifrost.Init(context.Background(), schemas.BifrostConfig{
		Account: account{strings.TrimSuffix(os.Args[1], "/v1")},
		Logger:  bifrost.NewDefaultLogger(schemas.LogLevelError),
	})
	if err != nil {
		log.Fatal(err)
	}
	relay := func(writer http.ResponseWriter, request *http.Request) {
		var asked struct {
			Model    string                `json:"model"`
			Messages []schemas.ChatMessage `json:"messages"`
		}
		if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := schemas.NewBifrostContextWithCancel(request.Context())
		defer cancel()
		chunks, failure := client.ChatCompletionStreamRequest(ctx, &schemas.BifrostChatRequest{
			Provider: schemas.OpenAI, Model: asked.Model, Input: asked.Messages,
		})
		if failure != nil {
			http.Error(writer, bifrost.GetErrorMessage(failure), http.StatusBadGateway)
			return
		}
		writer.Header().Set("Content-Type", "text/event-stream")
		for chunk := range chunks {
			line, err := json.Marshal(chunk)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Fprintf(writer, "data: %s\n\n", line)
			writer.(http.Flusher).Flush()
		}
		fmt.Fprint(writer, "data: [DONE]\n\n")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, http.HandlerFunc(relay)))
}
