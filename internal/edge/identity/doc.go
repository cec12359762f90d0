// Package identity is who a node is towards others: the client certificate by which the API server knows it, how it
// first gets that certificate (TLS bootstrap) and how it renews it, and the certificate that its own server shows.
//
// Contract: Bootstrap blocks until there is a kubeconfig that works or ctx ends. A Client and a Serving start nothing;
// their Run(ctx) blocks and has ended everything it started when it returns. Private keys are made on the node (ECDSA
// P-256), never leave it, and are written with mode 0600 before they are used, so that a restart goes on with the same
// key and finds the same certificate request. Nothing is written in place: a file is whole or is not there.
//
// What goes wrong while talking to the API server is a *Problem: what happened, to whom, and what to do. Everything
// that may get better by itself or by somebody's help (a server that is down, a token that is renewed in the file, a
// request that waits for a person) is tried again until ctx ends, with a message each time that says what is missing.
//
// Files, as Kubernetes' kubelet has them in --cert-dir:
//
//	kubelet-client-current.pem   link to kubelet-client-<time>.pem: certificate and key of the client
//	kubelet-client.key.tmp       key of a request that is not answered yet
//	kubelet-server-current.pem   the same for the serving certificate of serverTLSBootstrap
//	kubelet.crt, kubelet.key     self-signed serving certificate
package identity
