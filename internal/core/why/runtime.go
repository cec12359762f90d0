package why

import "strings"

// The runtime's errors have no type that says what is wrong with an image or a command: CRI passes on the words of the registry
// and of the OCI runtime. These tables are the words that containerd, CRI-O and runc use.

// words is a row of these tables: if the runtime's error, in lower case, contains any of the texts, its cause is the row's cause.
type words struct {
	cause Cause
	any   []string
}

// pullWords maps words of a pull error to causes. The first row that matches decides.
var pullWords = []words{
	{ImageDenied, []string{"unauthorized", "401", "403", "forbidden", "denied", "no basic auth credentials", "authorization failed", "authentication required"}},
	{RegistryAway, []string{
		"no such host", "connection refused", "connection reset", "i/o timeout", "network is unreachable", "no route to host", "tls handshake timeout",
		"deadline exceeded", "client.timeout", "server misbehaving", "temporary failure in name resolution", "502 bad gateway", "503 service",
		"500 internal", "504 gateway", "toomanyrequests", "429", "x509:", "http: server gave http response to https client", "unexpected eof",
	}},
	{ImageNotFound, []string{"not found", "manifest unknown", "name unknown", "404", "does not exist", "no match for platform"}},
}

// pullCause returns the cause for a failed pull.
func pullCause(reason, message string) Cause {
	switch reason {
	case "InvalidImageName":
		return ImageNameInvalid
	case "ErrImageNeverPull":
		return ImageNeverPulled
	case "SignatureValidationFailed":
		return ImageUnverified
	case "RegistryUnavailable":
		return RegistryAway
	}
	return match(pullWords, message, PullFails)
}

// startWords maps words of a start error to causes.
var startWords = []words{
	{CommandNotFound, []string{"executable file not found", "no such file or directory"}},
	{CommandDenied, []string{"permission denied", "exec format error"}},
}

// match returns the cause of the first row of table that has a text which message contains, or other if no row has one.
func match(table []words, message string, other Cause) Cause {
	message = strings.ToLower(message)
	for _, row := range table {
		for _, w := range row.any {
			if strings.Contains(message, w) {
				return row.cause
			}
		}
	}
	return other
}
