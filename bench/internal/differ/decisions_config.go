package differ

import (
	"fmt"
	"strings"
)

// ConfigDecisions are the intended differences that only `make differential-config` finds, because only its pods set the fields
// concerned. The pods that this package runs do not set them.
var ConfigDecisions = []Decision{
	{
		Class:  `config of a container: image.runtimeHandler: upstream "", Wherry "HANDLER"`,
		Why:    "The field is for runtimes that keep images per runtime handler: a container of a pod with a RuntimeClass is created from the image that was pulled for its handler. Upstream's kubelet sets the field only with the gate RuntimeClassInImageCriApi, which is alpha.",
		Notice: "If the handler of a RuntimeClass has its own snapshotter, the container uses the image in that snapshotter.",
	},
	{
		Class:  `config of a container: mounts[].image.runtimeHandler: upstream "", Wherry "HANDLER"`,
		Why:    "As for the container's own image.",
		Notice: "As above.",
	},
	{
		Class:  `config of a container: mounts in order: upstream has two where a volume is mounted where the termination message goes`,
		Why:    "Upstream's kubelet also mounts the file for the termination message at the same path. With Wherry a mount in the pod's spec takes precedence, as both agents handle a mount at /etc/hosts.",
		Notice: "The container sees the volume. Its termination message is the end of its log (FallbackToLogsOnError), or empty.",
	},
	{
		Class:  `config of a container: mounts[].imageSubPath: upstream has that of a mount of no image, in a pod with an image volume`,
		Why:    "The field belongs to image mounts; runtimes ignore it in other mounts.",
		Notice: "Nothing.",
	},
	{
		Class:  `config of a container: envs[].value of a limit of a named init container, which has none: upstream has 0, Wherry what the node has for pods`,
		Why:    `"If CPU and memory limits are not specified for a container, and you use the downward API to try to expose that information, then the kubelet defaults to exposing the maximum allocatable value". Upstream's kubelet does this for the container itself and for main containers, but not for an init container that resourceFieldRef.containerName names.`,
		Notice: "The variable has the node's value instead of 0.",
	},
	{
		Class:  `config of the sandbox of a pod with ports of a sidecar: portMappings: Wherry has those of sidecars, before the others`,
		Why:    "As in the lines above, for any port of a sidecar.",
		Notice: "The hostPort of a sidecar works.",
	},
	{
		Class:  `a container, with a variable from an optional file that is missing, is made by one alone: upstream "CreateContainerConfigError: couldn't parse env file", Wherry ""`,
		Why:    `"Specify whether the file or its key must be defined. If the file or key does not exist, then the env var is not published." Upstream's kubelet leaves out a missing key, and fails for a missing file.`,
		Notice: "A container with an optional fileKeyRef starts without the variable when there is no file.",
	},
	{
		Class:  `a container is made by one alone: upstream "", Wherry "volume \"...\": container \"...\", a mount: subPath \"...\" does not exist: no source of this secret volume gives such a file"`,
		Why:    "A subPath for which the volume has no key is a mistake. Upstream's kubelet creates an empty directory of that name in place of the missing file, and the container starts without the content that it needs.",
		Notice: "The container waits with CreateContainerConfigError and that text until the key exists, instead of running with an empty directory.",
	},
	{
		Class:  `a container is made by one alone: upstream "", Wherry "volume \"...\": container \"...\", a mount: subPath \"...\" does not exist: no source of this configmap volume gives such a file"`,
		Why:    "As for secrets.",
		Notice: "As above.",
	},
	{
		Class:  `a container is made by one alone: upstream "", Wherry "volume \"...\": container \"...\", a mount: subPath \"...\" does not exist: no source of this downward-api volume gives such a file"`,
		Why:    "As for secrets.",
		Notice: "As above.",
	},
	{
		Class:  `a container is made by one alone: upstream "", Wherry "volume \"...\": container \"...\", a mount: subPath \"...\" does not exist: no source of this projected volume gives such a file"`,
		Why:    "As for secrets.",
		Notice: "As above.",
	},
}

// rows formats decisions as rows of a Markdown table.
func rows(all []Decision) string {
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, "| %s%s | %s | %s |\n", cell(d.Class), d.where(), cell(d.Why), cell(d.Notice))
	}
	return b.String()
}

// aboutConfigs is the text in docs/differences.md before the table of ConfigDecisions.
const aboutConfigs = `
## What the runtime receives, field by field

` + "`make differential-config N=10000`" + ` runs the code of both agents in one process, lets both create the sandbox and the containers of the same pods, and compares
each field of their requests. First each field of a pod's spec is set alone; then random pods follow, which the API server's own validation
accepts (5 to 64 changes each). The lines about configurations in the table above apply here too. Two things are not compared: which host IDs a
user namespace gets, and orders that come from a Go map in upstream's kubelet (variables, DNS options). [pod-fields.md](pod-fields.md)
lists each field, and which of them reach the runtime. A run with 300 random pods compared 1,208 pods with 2,642 containers, 294,802
fields of the requests, and found no difference but these; it takes about 20 ms of a processor for each pod.

| Difference | Why | What a user notices |
|---|---|---|
`
