package crispec

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
)

// specHashVersion begins every hash and names the list of fields below. A change of the list, or of how it is hashed, needs a new
// version: see SpecChanged.
const specHashVersion = "1-"

// SpecChanged reports whether the definition of a container has changed since the container was created. now is the SpecHash of the
// present spec, made is the SpecHash in the container's annotation. Only hashes of the same version can be compared. A container with a
// hash of another version, or with none, counts as unchanged: nobody knows whether it changed, and an upgrade of the agent must not
// restart all containers of a node. Its next attempt gets a hash of the new version.
func SpecChanged(now, made string) bool {
	version, _, ok := strings.Cut(now, "-")
	return ok && strings.HasPrefix(made, version+"-") && made != now
}

// SpecHash returns a hash of the fields whose change requires a new container: name, image, command, args, working
// directory and literal environment variables. The API server lets only the image change; a pod from a file, a URL or a push may keep
// its UID and change any of these fields. The hash does not cover resources, because they change in place.
func SpecHash(_ *v1.Pod, c *v1.Container) string {
	h := fnv.New64a()
	field := func(key string, values ...string) {
		// The lengths make different lists of values differ, even if their concatenations are equal.
		fmt.Fprintf(h, "%s[%d]", key, len(values))
		for _, v := range values {
			fmt.Fprintf(h, "%d:%s", len(v), v)
		}
	}
	field("name", c.Name)
	field("image", c.Image)
	field("command", c.Command...)
	field("args", c.Args...)
	field("workingDir", c.WorkingDir)
	for i := range c.Env {
		if c.Env[i].ValueFrom == nil {
			field("env", c.Env[i].Name, c.Env[i].Value)
		}
	}
	return specHashVersion + strconv.FormatUint(h.Sum64(), 16)
}

// KubeletHash returns the value that upstream's kubelet writes to AnnotationKubeletHash. Upstream encodes the container's name and image as
// JSON, dumps the bytes with dump.ForHash, and writes the 32-bit FNV-1a hash of the dump in hexadecimal.
func KubeletHash(c *v1.Container) string {
	raw, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil {
		return "" // cannot happen: a map of strings can always be encoded
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(raw))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}
