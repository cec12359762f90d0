package differ

import (
	"fmt"
	"strings"
)

// ConfigDecisions are the classes of intended differences that only the comparison of configurations finds (make
// differential-config), because the runner of lives does not create such pods.
var ConfigDecisions = []Decision{
	{
		Class:  `config of a container: image.runtimeHandler: upstream "", Wherry "HANDLER"`,
		Why:    "The field is for runtimes that keep images per runtime handler: a container of a pod with a RuntimeClass is made of the image that was pulled for its handler. Upstream fills it in behind the gate RuntimeClassInImageCriApi, which is alpha.",
		Notice: "With a RuntimeClass whose handler has a snapshotter of its own, the image that is used is that one's.",
	},
	{
		Class:  `config of a container: mounts[].image.runtimeHandler: upstream "", Wherry "HANDLER"`,
		Why:    "As for the container's own image.",
		Notice: "As above.",
	},
	{
		Class:  `config of a container: mounts in order: upstream has two where a volume is mounted where the termination message goes`,
		Why:    "Upstream tells the runtime of the file for the message, too, at the same path. A mount that the pod asks for by name wins here, as it does at /etc/hosts with both agents.",
		Notice: "The volume is there, and the message is what the container writes to its log (FallbackToLogsOnError) or nothing.",
	},
	{
		Class:  `config of a container: mounts[].imageSubPath: upstream has that of a mount of no image, in a pod with an image volume`,
		Why:    "The field is one of image mounts; in others runtimes do not look at it.",
		Notice: "Nothing.",
	},
	{
		Class:  `config of a container: envs[].value of a limit of a named init container, which has none: upstream has 0, Wherry what the node has for pods`,
		Why:    `"If CPU and memory limits are not specified for a container, and you use the downward API to try to expose that information, then the kubelet defaults to exposing the maximum allocatable value". Upstream does that for the container itself and for main containers, not for an init container that is named (resourceFieldRef.containerName).`,
		Notice: "The variable has the node's value instead of 0.",
	},
	{
		Class:  `config of the sandbox of a pod with ports of a sidecar: portMappings: Wherry has those of sidecars, before the others`,
		Why:    "The ports of sidecars, whatever their numbers: as in the lines above.",
		Notice: "The hostPort of a sidecar works.",
	},
	{
		Class:  `a container, with a variable from an optional file that is missing, is made by one alone: upstream "CreateContainerConfigError: couldn't parse env file", Wherry ""`,
		Why:    `"Specify whether the file or its key must be defined. If the file or key does not exist, then the env var is not published." Upstream's kubelet leaves out a missing key, and fails for a missing file.`,
		Notice: "A container with an optional fileKeyRef starts without the variable when there is no file.",
	},
	{
		Class:  `a container is made by one alone: upstream "", Wherry "volume \"...\": container \"...\", a mount: subPath \"...\" does not exist: no source of this secret volume gives such a file"`,
		Why:    "A subPath that no key gives is a mistake. Upstream makes an empty directory of that name in the volume, where a file was meant, and the container starts without what it needs.",
		Notice: "CreateContainerConfigError with that text, until the key is there, instead of a container with an empty directory.",
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

// rows formats decisions as lines of a table.
func rows(all []Decision) string {
	var b strings.Builder
	for _, d := range all {
		where := ""
		if d.Where != "" {
			where = " (" + d.Where + ")"
		}
		fmt.Fprintf(&b, "| %s%s | %s | %s |\n", cell(d.Class), where, cell(d.Why), cell(d.Notice))
	}
	return b.String()
}

// aboutConfigs is the text before the differences of configuration.
const aboutConfigs = `
## What the runtime receives, field by field

` + "`make differential-config N=10000`" + ` lets the code of both agents make the sandbox and the containers of the same pods in one process, and
compares each field of both requests: each field of a pod's spec set alone, then random pods that the API server's own validation
takes (5 to 64 changes each). Lines of the table above about configurations hold here, too. What is not compared: which host IDs a
user namespace gets, and the orders that in upstream are those of a Go map (variables, DNS options). [pod-fields.md](pod-fields.md)
lists each field, and which of them reach the runtime. A run with 300 random pods compared 1,208 pods with 2,642 containers, 294,802
fields of the requests, and found no difference but these; it takes about 20 ms of a processor for each pod.

| Difference | Why | What a user notices |
|---|---|---|
`
