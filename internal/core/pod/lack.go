package pod

import "errors"

// Lack says what is missing when the volumes of a pod cannot be set up. LackNone means that nothing is missing, so a failed set-up has
// another reason.
type Lack uint8

// These are the things that the set-up of a pod's volumes may lack.
const (
	LackNone        Lack = iota
	LackConfigMap        // a ConfigMap does not exist
	LackSecret           // a Secret does not exist
	LackKey              // a ConfigMap or Secret does not have a key
	LackClaim            // a persistent volume claim does not exist
	LackBinding          // a claim is not bound to a persistent volume
	LackTurn             // a claim may be used by one pod only, and another pod of the node uses it
	LackAttachment       // a volume is not attached to the node yet
	LackAttach           // a volume could not be attached to the node
	LackVolumeLimit      // the node has as many volumes of a CSI driver as it can have, and the pod has to run on another node
	LackDriver           // a CSI driver has not registered on the node
	LackRight            // the API server does not let the node read an object
	LackServer           // the API server did not answer
	LackSupport          // the agent does not support this kind of volume
	LackDevices          // the agent cannot prepare the devices of resource claims
	LackBundle           // the ClusterTrustBundle of a volume does not exist, or its selector matches none
	LackCertificate      // a signer has not issued a certificate for the pod
	LackMount            // a mount did not end in time: the tool, the server or the CSI driver of a volume hangs
)

// Lacking is an error together with the lack that is its cause.
type Lacking struct {
	What Lack
	Err  error
}

func (e *Lacking) Error() string { return e.Err.Error() }

// Unwrap returns e.Err.
func (e *Lacking) Unwrap() error { return e.Err }

// LackOf returns the lack that is the cause of err, or LackNone if err wraps no Lacking.
func LackOf(err error) Lack {
	var l *Lacking
	if errors.As(err, &l) {
		return l.What
	}
	return LackNone
}
