//go:build tools

// Names what is built here: kube-router, of which a cluster's NetworkPolicies are enforced.
package policies

import _ "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
