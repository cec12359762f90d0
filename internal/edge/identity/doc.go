// Package identity keeps a node's certificates: the client certificate by which the API server recognizes the node, and the
// certificate of the node's own server. It obtains the first client certificate (TLS bootstrap) and renews both.
//
// Contract: the Run of a Joining blocks until there is a kubeconfig that works, and then renews its certificate until ctx ends. The agent works
// meanwhile: its requests to the API server wait. A Client, a Joining and a Serving start nothing. Their Run(ctx) blocks, and joins everything
// that it started. Private keys are made on the node (ECDSA P-256) and
// never leave it. They are written with mode 0600 before they are used, so that after a restart the agent goes on with
// the same key and finds the same certificate request. No file is changed in place: it is complete or does not exist.
//
// An error of the communication with the API server is a *Problem: it says what happened, with which server and file, and what to
// do. The package tries again, until ctx ends, after every failure that may end by itself or by somebody's action (a server that
// is down, an old token, a request that waits for approval). Its messages say what is missing.
//
// The files are those of upstream's kubelet in --cert-dir:
//
//	kubelet-client-current.pem   link to kubelet-client-<time>.pem: certificate and key of the client
//	kubelet-client.key.tmp       key of a request that is not answered yet
//	kubelet-server-current.pem   the same for the serving certificate of serverTLSBootstrap
//	kubelet.crt, kubelet.key     self-signed serving certificate
//
// client-go/util/certificate is not used: its manager starts goroutines that nobody can join, and logs to a global
// logger.
package identity
