// Package kubeclient reaches the API server: the resources that a node agent and its hand tools use, and no others.
//
// k8s.io/client-go/kubernetes has a client for every resource of Kubernetes, with all their types, apply configurations and
// schemas: some ten MiB of text, which the kernel maps in as it is touched, and a scheme that every process fills at its
// start. Here are the seven groups that an agent speaks, over the same k8s.io/client-go/rest; internal/proof/archtest keeps the
// other package out.
//
// The methods of a Resource have the signatures of the field's typed clients, so that either fits the narrow interfaces
// of those who call: each package says for itself which methods it needs. Follow keeps something up to date
// by a list and a watch. Everything may be called concurrently. Errors are
// those of the API (k8s.io/apimachinery/pkg/api/errors) or of the connection, as they are.
package kubeclient
