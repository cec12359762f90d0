// Package image makes sure that the image of a container is present: it asks the runtime, and pulls where the
// pull policy says so, with the credentials of the pod's imagePullSecrets and of the node.
//
// Contract: Ensure blocks its caller until the image is there, its context ends or the pull failed. It writes no
// event and keeps no back-off: it returns facts and the field's reason (ErrImagePull, ErrImageNeverPull,
// InvalidImageName, ImageInspectError, RegistryUnavailable, SignatureValidationFailed) for the caller to use.
//
// Invariants:
//
//   - One pull per image, runtime handler and set of credentials at a time; all that want it share it. It is
//     cancelled when the last of them has gone, and has ended when that Ensure returns.
//   - At most MaxParallel pulls at once, first come first served.
//   - CRI reports no progress of a pull, neither bytes nor layers. The node shows only that a pull is in flight and for how
//     long; its size and times come with the Result.
//   - Credentials are read again for every pull, so a changed secret counts at once.
//   - A pod uses an image that is present only if Config.Access exempts it or Records say that the pod's credentials have pulled
//     it. A pod that may not use an image does not learn that it is present. A note is written before a pull, and removed after
//     the pull was recorded.
//   - A present image that needs no verification costs one call of the runtime, and no secret is read for it.
package image
