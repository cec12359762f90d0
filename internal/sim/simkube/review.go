package simkube

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// token answers a TokenRequest with a token that names its account and its expiry.
func (k *Kube) token(req *request, body []byte) (answer, error) {
	var tr authenticationv1.TokenRequest
	if err := read(body, &tr, authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")); err != nil {
		return answer{}, err
	}
	seconds := int64(3600)
	if tr.Spec.ExpirationSeconds != nil {
		seconds = *tr.Spec.ExpirationSeconds
	}
	if seconds < 600 {
		return answer{}, apierrors.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), "", field.ErrorList{
			field.Invalid(field.NewPath("spec", "expirationSeconds"), seconds, "may not specify a duration less than 10 minutes")})
	}
	if seconds > 1<<32 {
		return answer{}, apierrors.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), "", field.ErrorList{
			field.Invalid(field.NewPath("spec", "expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds")})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds["v1/serviceaccounts"].objects[key(req.namespace, req.name)] == nil {
		return answer{}, apierrors.NewNotFound(req.gr(), req.name)
	}
	if ref := tr.Spec.BoundObjectRef; ref != nil && ref.Kind == "Pod" {
		pods := k.kinds["v1/pods"]
		p := pods.objects[key(req.namespace, ref.Name)]
		if p == nil {
			return answer{}, apierrors.NewNotFound(pods.gr(), ref.Name)
		}
		if ref.UID != "" && ref.UID != p.meta.GetUID() {
			return answer{}, apierrors.NewConflict(pods.gr(), ref.Name, fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
		}
	}
	tr.Spec.ExpirationSeconds = &seconds
	until := metav1.NewTime(time.Now().Truncate(time.Second).Add(time.Duration(seconds) * time.Second))
	tr.Status = authenticationv1.TokenRequestStatus{ExpirationTimestamp: until,
		Token: fmt.Sprintf("simkube.%s.%s.%d", req.namespace, req.name, until.Unix())}
	return raw(http.StatusCreated, encode(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), &tr)), nil
}

// UnknownToken is the prefix of tokens that belong to no user.
const UnknownToken = "unknown-"

// review allows every access. It accepts every token that is not empty and does not have the prefix
// UnknownToken. The token is the user's name.
func review(kd *kind, body []byte) (answer, error) {
	obj, err := decode(kd, body)
	if err != nil {
		return answer{}, err
	}
	switch r := obj.(type) {
	case *authenticationv1.TokenReview:
		r.Status = authenticationv1.TokenReviewStatus{Authenticated: r.Spec.Token != "" && !strings.HasPrefix(r.Spec.Token, UnknownToken),
			User: authenticationv1.UserInfo{Username: r.Spec.Token, Groups: []string{"system:authenticated"}}, Audiences: r.Spec.Audiences}
	case *authorizationv1.SubjectAccessReview:
		r.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "simkube allows everything"}
	}
	return raw(http.StatusCreated, encode(kd.gvk, obj)), nil
}
