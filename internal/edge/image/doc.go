// Package image makes the images of containers present. It asks the runtime for an image, and pulls it if the pull policy
// requires that, with the credentials of the pod's imagePullSecrets and of the node.
//
// Contract: Ensure blocks until the image is present, its context ends or the pull fails. It records no event and keeps no back-off. It
// returns a Result, or an Error with the reason that Kubernetes uses (ErrImagePull, ErrImageNeverPull, InvalidImageName,
// ImageInspectError, RegistryUnavailable, SignatureValidationFailed).
//
// Invariants:
//
//   - There is one pull per image, runtime handler and set of credentials at a time. All requests for it share the pull. It is canceled
//     when the last request has left, and it has ended before that Ensure returns.
//   - At most MaxParallel pulls run at a time, first come first served.
//   - CRI reports no progress of a pull, neither bytes nor layers. If the runtime has a call of its own for that (Config.Downloads), Pulls
//     says how much has arrived; otherwise it says only how long a pull has taken. A pull in which nothing happens is reported once, and
//     never ended for that.
//   - Credentials are read again for every pull, so a changed secret takes effect at once.
//   - A pod may use a present image only if Config.Access exempts it, or if Records show that the pod's credentials have pulled it. A pod
//     that may not use an image does not learn that it is present. Before a pull, Images stores that the pull has begun (Records.Begin),
//     and after it who has pulled the image, so that an image whose pull was interrupted does not look like one that was always there.
//   - A present image that needs no verification costs one call of the runtime, and no secret is read for it.
package image
