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
//   - CRI tells nothing of a pull before it has ended: no bytes, no layers. What is shown of its progress is that it
//     goes on and for how long; its size and times come with the Result.
//   - Credentials are found again for every pull: a secret that was changed counts at once.
//   - A pod uses an image that is present only if Config.Access exempts it or Records say that the pod's credentials have pulled
//     it. Who may not learns nothing of its presence. An image is noted before it is pulled, and recorded before the note goes.
//   - A present image that needs no verification costs one question to the runtime, and no secret is read for it.
package image
