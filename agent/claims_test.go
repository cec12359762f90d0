package agent

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// lateAuthorizer is an API server that refuses the first requests, because its Node authorizer does not know the pod yet.
type lateAuthorizer struct{ refuse, requests int }

func (l *lateAuthorizer) RoundTrip(r *http.Request) (*http.Response, error) {
	code, body := http.StatusOK, `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c"}}`
	if l.requests++; l.requests <= l.refuse {
		code, body = http.StatusForbidden, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no relationship found between node and this object"}`
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// A claim that the API server does not yet let the node read is read again a moment later, so that the pod gets no event about that.
func TestAClaimIsReadAgainWhenTheAuthorizerIsLate(t *testing.T) {
	t.Parallel()
	server := &lateAuthorizer{refuse: 2}
	client, err := kubeclient.New(&rest.Config{Host: "http://api.example", Transport: server})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := nodeClaims{api: client}.Claim(t.Context(), "ns", "c")
	if err != nil || claim.Name != "c" || server.requests != 3 {
		t.Errorf("after %d requests: %v, %v", server.requests, claim, err)
	}
}
