package stats

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// APICalls counts the requests that this node sends to the API server. Its methods may be called concurrently and never block.
type APICalls struct {
	requests, retries      *amounts
	took, waited           *distributions
	sent, received         *distributions
	authn, authz           *amounts
	authnTook, authzTook   *distributions
	clientRenewalErrors    *single
	servingRenewalErrors   *single
	servingAge             *distribution
	clientEnds, servingEnd *measured
}

// APIConfig configures APICalls.
type APIConfig struct {
	Registerer prometheus.Registerer
	// ClientEnds and ServingEnds return when the node's client and serving certificates expire; zero: the node has no such certificate
	// now. A nil function means that the node never has such a certificate.
	ClientEnds, ServingEnds func() time.Time
}

// NewAPICalls makes the metrics and registers them.
func NewAPICalls(cfg APIConfig) (*APICalls, error) {
	a := &APICalls{
		requests:  counters("rest_client_requests_total", "Requests to the API server, by the status of the answer, or <error> without an answer", "code", "method", "host"),
		retries:   counters("rest_client_request_retries_total", "Answers of the API server that told the client to try again later", "code", "verb", "host"),
		took:      histograms("rest_client_request_duration_seconds", "Seconds that requests to the API server took, until their answers were read; without watches", requestBuckets, "verb", "host"),
		waited:    histograms("rest_client_rate_limiter_duration_seconds", "Seconds that requests to the API server waited for the node's own limit of requests", requestBuckets, "verb", "host"),
		sent:      histograms("rest_client_request_size_bytes", "Bytes of the bodies of requests to the API server", sizeBuckets, "verb", "host"),
		received:  histograms("rest_client_response_size_bytes", "Bytes of the bodies of answers of the API server; without watches", sizeBuckets, "verb", "host"),
		authn:     counters("apiserver_delegated_authn_request_total", "Requests that asked the API server who a client of the node is, by the status of the answer", "code"),
		authz:     counters("apiserver_delegated_authz_request_total", "Requests that asked the API server what a client of the node may do, by the status of the answer", "code"),
		authnTook: histograms("apiserver_delegated_authn_request_duration_seconds", "Seconds of the requests that asked the API server who a client of the node is", reviewBuckets, "code"),
		authzTook: histograms("apiserver_delegated_authz_request_duration_seconds", "Seconds of the requests that asked the API server what a client of the node may do", reviewBuckets, "code"),

		clientRenewalErrors:  counter("kubelet_certificate_manager_client_expiration_renew_errors", "Tries to renew the node's client certificate that failed"),
		servingRenewalErrors: counter("kubelet_server_expiration_renew_errors", "Tries to get or renew the node's serving certificate that failed"),
		servingAge: histogram("kubelet_certificate_manager_server_rotation_seconds", "Seconds for which a serving certificate was in use before the next one replaced it",
			ageBuckets),
		clientEnds: ttl("kubelet_certificate_manager_client_ttl_seconds", "Seconds until the node's client certificate expires, negative after that; +Inf: the node has no such certificate", cfg.ClientEnds),
		servingEnd: ttl("kubelet_certificate_manager_server_ttl_seconds", "Seconds until the node's serving certificate expires, negative after that; +Inf: the node has no such certificate", cfg.ServingEnds),
	}
	return a, register(cfg.Registerer, a.requests, a.retries, a.took, a.waited, a.sent, a.received, a.authn, a.authz, a.authnTook, a.authzTook,
		a.clientRenewalErrors, a.servingRenewalErrors, a.servingAge, a.clientEnds, a.servingEnd)
}

// Answered records a request and the HTTP status of its answer; 0: there was no answer.
func (a *APICalls) Answered(method, host string, status int) {
	a.requests.WithLabelValues(statusLabel(status), method, host).Inc()
}

// Repeated records an answer after which the client sends the same request again later, for example because it has a Retry-After.
func (a *APICalls) Repeated(method, host string, status int) {
	a.retries.WithLabelValues(statusLabel(status), method, host).Inc()
}

// Read records that the answer to a request was read to its end: the time since the request was sent, and the sizes of both bodies; -1:
// not known.
func (a *APICalls) Read(method, host string, took time.Duration, sent, received int64) {
	a.took.WithLabelValues(method, host).Observe(took.Seconds())
	if sent >= 0 {
		a.sent.WithLabelValues(method, host).Observe(float64(sent))
	}
	a.received.WithLabelValues(method, host).Observe(float64(received))
}

// Limited records how long a request waited because of the agent's own rate limit for requests.
func (a *APICalls) Limited(method, host string, waited time.Duration) {
	a.waited.WithLabelValues(method, host).Observe(waited.Seconds())
}

// Authenticated records a TokenReview by the status of its answer; 0: no answer.
func (a *APICalls) Authenticated(status int, took time.Duration) {
	label := statusLabel(status)
	a.authn.WithLabelValues(label).Inc()
	a.authnTook.WithLabelValues(label).Observe(took.Seconds())
}

// Authorized records a SubjectAccessReview by the status of its answer; 0: no answer.
func (a *APICalls) Authorized(status int, took time.Duration) {
	label := statusLabel(status)
	a.authz.WithLabelValues(label).Inc()
	a.authzTook.WithLabelValues(label).Observe(took.Seconds())
}

// ClientRenewalFailed records a failed try to renew the client certificate.
func (a *APICalls) ClientRenewalFailed() { a.clientRenewalErrors.Inc() }

// ServingRenewalFailed records a failed try to renew the serving certificate.
func (a *APICalls) ServingRenewalFailed() { a.servingRenewalErrors.Inc() }

// ServingReplaced records how long a serving certificate was in use before a new certificate replaced it.
func (a *APICalls) ServingReplaced(age time.Duration) { a.servingAge.Observe(age.Seconds()) }

// statusLabel returns the label of an HTTP status. A server may send any number; numbers that are not HTTP statuses share one label.
func statusLabel(status int) string {
	switch {
	case status == 0:
		return "<error>"
	case status < 100 || status > 599:
		return other
	}
	return strconv.Itoa(status)
}
