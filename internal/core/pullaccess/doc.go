// Package pullaccess decides whether a pod may use an image that is present on the node: the rules of Kubernetes'
// imagePullCredentialsVerificationPolicy, as pure functions over what is recorded of the image and the credentials that the
// pod has.
//
// Contract: a Policy says which images anybody may use. For the others Match compares the pod's secrets with those that
// pulled the image before, and Add notes one more that did. What is not known is never allowed: the caller then pulls the
// image again with the pod's own credentials, and the registry decides.
//
// The names of images, the hash of a credential and the order inside a record are those of Kubernetes' kubelet, so that
// both read each other's records.
package pullaccess
