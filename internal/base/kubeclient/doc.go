// Package kubeclient is a client for the API server. It has only the resources that the node agent and the commands of package handtools
// use.
//
// k8s.io/client-go/kubernetes has a client for every resource of Kubernetes, with all types, apply configurations and schemas: some ten MiB
// of code, and a scheme that every process fills at its start. This package has only the API groups that an agent uses, on top of
// k8s.io/client-go/rest. A test, internal/proof/archtest, forbids imports of k8s.io/client-go/kubernetes.
//
// The methods of a Resource have the signatures of client-go's typed clients. So a Resource and a typed client both implement the narrow
// interfaces of the callers: each package declares the methods that it needs. Follow keeps objects up to date by a list and a watch.
// The objects that it passes on share texts and maps (labels, resources), so nobody may write to them. Everything may be called concurrently. Errors are the unchanged errors of the API (k8s.io/apimachinery/pkg/api/errors) or of the
// connection.
package kubeclient
