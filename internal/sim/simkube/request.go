package simkube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// request is a parsed request.
type request struct {
	agent       string
	verb        string // get list watch create update patch delete
	version     string // group/version
	resource    string
	namespace   string
	name        string
	sub         string
	query       url.Values
	contentType string
}

func (r *request) gr() schema.GroupResource {
	group, _, ok := strings.Cut(r.version, "/")
	if !ok {
		group = ""
	}
	return schema.GroupResource{Group: group, Resource: r.resource}
}

// readRequest parses the path /api/v1/... or /apis/group/version/..., followed by
// [namespaces/ns/]resource[/name[/subresource]].
func readRequest(r *http.Request) (*request, []byte, error) {
	req := &request{agent: r.UserAgent(), query: r.URL.Query(), contentType: r.Header.Get("Content-Type")}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		req.version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		req.version, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		return nil, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "the server could not find the requested resource", 0, true)
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" && parts[2] != "finalize" {
		req.namespace, parts = parts[1], parts[2:]
	}
	req.resource = parts[0]
	if len(parts) > 1 {
		req.name = parts[1]
	}
	if len(parts) > 2 {
		req.sub = parts[2]
	}
	req.verb = verbOf(r.Method, req)
	if accept := r.Header.Get("Accept"); accept != "" && !strings.Contains(accept, "json") && !strings.Contains(accept, "*/*") {
		return nil, nil, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, req.verb, req.gr(), req.name, "only application/json is served", 0, true)
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, nil, apierrors.NewBadRequest("read body: " + err.Error())
		}
	}
	return req, body, nil
}

func verbOf(method string, req *request) string {
	switch method {
	case http.MethodGet:
		if w := req.query.Get("watch"); w == "true" || w == "1" {
			return "watch"
		}
		if req.name == "" {
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if req.name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	return strings.ToLower(method)
}

// do performs a request.
func (k *Kube) do(ctx context.Context, req *request, body []byte) (answer, error) {
	kd := k.kinds[req.version+"/"+req.resource]
	if kd == nil {
		return answer{}, apierrors.NewGenericServerResponse(http.StatusNotFound, req.verb, req.gr(), req.name, "simkube does not serve "+req.version+" "+req.resource, 0, true)
	}
	switch {
	case req.verb == "create" && req.resource == "serviceaccounts" && req.sub == "token":
		return k.token(req, body)
	case req.verb == "create" && (req.resource == "tokenreviews" || req.resource == "subjectaccessreviews"):
		return review(kd, body)
	case req.sub != "" && !(req.sub == "status" && kd.status) && !((req.sub == "ephemeralcontainers" || req.sub == "resize") && kd.resource == "pods"):
		return answer{}, apierrors.NewGenericServerResponse(http.StatusNotFound, req.verb, req.gr(), req.name, "simkube has no "+req.resource+"/"+req.sub, 0, true)
	}
	switch req.verb {
	case "get":
		return k.get(kd, req)
	case "list":
		return k.list(kd, req)
	case "watch":
		return k.watch(ctx, kd, req)
	case "create":
		if req.sub == "" {
			return k.create(kd, req, body)
		}
	case "update", "patch":
		return k.update(kd, req, body)
	case "delete":
		if kd.resource != "namespaces" && req.sub == "" {
			return k.delete(kd, req, body)
		}
	case "deletecollection":
		if kd.resource != "namespaces" {
			return k.deleteAll(kd, req, body)
		}
	}
	return answer{}, apierrors.NewMethodNotSupported(kd.gr(), req.verb)
}

// raw returns an answer whose body is already encoded.
func raw(code int, body []byte) answer {
	return answer{code: code, body: io.NopCloser(bytes.NewReader(body))}
}

// encode returns the JSON of an object with its kind.
func encode(gvk schema.GroupVersionKind, obj runtime.Object) []byte {
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	b, err := json.Marshal(obj)
	if err != nil { // API types can always be encoded
		panic(fmt.Sprintf("simkube: encode %s: %v", gvk.Kind, err))
	}
	return b
}

// failure returns the answer for an error, in the form of an API server.
func failure(err error) answer {
	st := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
	var as apierrors.APIStatus
	if errors.As(err, &as) {
		st = as.Status()
	}
	return raw(int(st.Code), encode(schema.GroupVersionKind{Version: "v1", Kind: "Status"}, &st))
}

// decode decodes an object of a kind, JSON or protobuf, from the body of a request.
func decode(kd *kind, body []byte) (runtime.Object, error) {
	obj := kd.new()
	if err := read(body, obj, kd.gvk); err != nil {
		return nil, err
	}
	return obj, nil
}

func read(body []byte, into runtime.Object, want schema.GroupVersionKind) error {
	_, got, err := decoder().Decode(body, &want, into)
	if err != nil {
		return apierrors.NewBadRequest("decode " + want.Kind + ": " + err.Error())
	}
	if *got != want {
		return apierrors.NewBadRequest(fmt.Sprintf("the object provided is %s, not %s", got, want))
	}
	return nil
}
