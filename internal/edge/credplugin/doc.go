// Package credplugin runs the credential provider plugins of a node: programs that return registry credentials for an image.
//
// The configuration is Kubernetes' CredentialProviderConfig (--image-credential-provider-config, a file or a directory of files), and
// the programs are in --image-credential-provider-bin-dir. A plugin reads a CredentialProviderRequest from its standard input and
// writes a CredentialProviderResponse to its standard output.
//
// Contract: Load reads the configuration once and starts nothing. Credentials may be called concurrently. Answers are kept in memory
// for as long as the plugin says, by image, registry or for all images. Equal questions at one time start one process, and few processes
// run at once. Close ends them.
//
// A plugin may hang, print without end or print secrets: each run has a time limit and a bound of output, its process group is killed
// at the limit, and neither output nor error output is logged or put into an error.
package credplugin
