// Package credplugin runs the credential provider plugins of a node: programs that return registry credentials for an image.
//
// The configuration is Kubernetes' CredentialProviderConfig (--image-credential-provider-config, a file or a directory of files), and
// the programs are in --image-credential-provider-bin-dir. A plugin reads a CredentialProviderRequest from its standard input and
// writes a CredentialProviderResponse to its standard output.
//
// Contract: Load reads the configuration once and starts nothing. Credentials may be called concurrently. Answers are cached in
// memory for as long as the plugin says, by image, by registry or for all images. Equal requests at the same time start one
// process, and only a few processes of one plugin run at once, so that a plugin that hangs delays only the images that it is for. Close ends them.
//
// A plugin may hang, print without end or print secrets. So each run has a time limit and a limit of output. At a limit its
// process group is killed, and when the plugin has exited, what is left of the group. Neither its output nor its error output is
// logged or becomes part of an error.
package credplugin
