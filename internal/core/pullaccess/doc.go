// Package pullaccess decides whether a pod may use an image that is present on the node. It implements the rules of Kubernetes'
// imagePullCredentialsVerificationPolicy, as pure functions of the image's record and the pod's credentials.
//
// Contract: a Policy says which images every pod may use. For the other images, Match compares the pod's secrets with the recorded
// credentials that pulled the image before, and Add records further credentials. If an image has no record, the pod may not use it:
// the caller then pulls the image again with the pod's own credentials, and the registry decides.
//
// The names of images, the hash of a credential and the order inside a record are those of upstream's kubelet, so that both agents
// can read each other's records.
package pullaccess
