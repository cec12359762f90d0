package differ

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Config is the configuration of a sandbox or a container that the runtime received, flattened to text: the field
// "linux.resources.cpuShares" has the value "2", for example. In lists whose elements have a key (see keys), the key replaces the index,
// and the order of the list is a field of its own.
type Config map[string]string

// keys maps the name of each list whose elements have a unique key to the field that is the key.
var keys = map[string]string{"mounts": "containerPath", "envs": "key", "devices": "containerPath", "portMappings": "containerPort"}

// OfHostID reports whether a field is a host ID of a user namespace. Each agent chooses a free range of IDs, so the values differ.
func OfHostID(field string) bool { return hostID.MatchString(field) }

// ConfigOf makes a Config from a CRI message.
func ConfigOf(m proto.Message) Config {
	raw, err := protojson.MarshalOptions{EmitUnpopulated: false}.Marshal(m)
	if err != nil {
		return Config{"error": err.Error()}
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return Config{"error": err.Error()}
	}
	c := Config{}
	c.flatten("", tree)
	c.sortOptions()
	return c
}

// sortOptions sorts the DNS options by name, because their order has no meaning and upstream takes them from a Go map.
func (c Config) sortOptions() {
	var options []string
	for field, value := range c {
		if dnsOption.MatchString(field) {
			options = append(options, value)
			delete(c, field)
		}
	}
	slices.Sort(options)
	for i, value := range options {
		c[fmt.Sprintf("dnsConfig.options[%d]", i)] = value
	}
}

var dnsOption = regexp.MustCompile(`^dnsConfig\.options\[\d+\]$`)

func (c Config) flatten(at string, node any) {
	switch node := node.(type) {
	case map[string]any:
		for k, v := range node {
			c.flatten(strings.TrimPrefix(at+"."+k, "."), v)
		}
	case []any:
		last := at[strings.LastIndex(at, ".")+1:]
		var order []string
		for i, v := range node {
			name := fmt.Sprint(i)
			if fields, ok := v.(map[string]any); ok && keys[last] != "" {
				name = fmt.Sprint(fields[keys[last]])
				order = append(order, name)
				if raw, err := base64.StdEncoding.DecodeString(fmt.Sprint(fields["value"])); err == nil && last == "envs" {
					fields["value"] = string(raw) // the value is a field of type bytes, in base64
				}
			}
			c.flatten(at+"["+name+"]", v)
		}
		if order != nil {
			c[at+" in order"] = strings.Join(order, " ")
		}
	default:
		c[at] = fmt.Sprint(node)
	}
}

var (
	ownDirectory = regexp.MustCompile(`/\S*/(upstream|wherry)(-\d+)?/(root|logs|plugins|pki)\b`)
	ownAddress   = regexp.MustCompile(`\b127\.[6-9]\d\.\d+\.\d+\b`)
	ownCgroup    = regexp.MustCompile(`wherry-bench[^/]*`)
	ownNode      = regexp.MustCompile(`(wherry-)?bench-(upstream|wherry)(-\d+)?`)
	ownUID       = regexp.MustCompile(`(pod|_)[0-9a-f]{32}\b`) // UID of a static pod, which depends on the node
	hashed       = regexp.MustCompile(`(containers/[^/]+/)(ID|[0-9a-f]{8})\b`)
	ownToken     = regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`)
	hostID       = regexp.MustCompile(`([uU]id|[gG]id)(s|Mappings)\[[^\]]*\]\.hostId$`)
)

// normal replaces the parts of a value that differ between the agents' nodes: directories, names, addresses and UIDs.
func (d *differ) normal(value string) string {
	value = ownDirectory.ReplaceAllString(value, "/AGENT/$3")
	value = ownNode.ReplaceAllString(value, "NODE")
	value = ownAddress.ReplaceAllString(value, "ADDRESS")
	value = ownCgroup.ReplaceAllString(value, "CGROUP")
	value = ownUID.ReplaceAllString(value, "${1}ID")
	value = ownToken.ReplaceAllString(value, "kube-api-access-NAME")
	value = hashed.ReplaceAllString(value, "${1}HASH")
	return d.message(value)
}

// madeTogether reports whether both agents created the first instance of a container within 5 s (late) of each other, or one of them
// created none. Otherwise the case may have changed the image between the two creations.
func (d *differ) madeTogether(name string) bool {
	u, w := d.upstream.instances(name)[0], d.wherry.instances(name)[0]
	return u == nil || w == nil || (u.began.Sub(d.upstream.Created)-w.began.Sub(d.wherry.Created)).Abs() < late
}

// element matches the index or key of a list element in the name of a field. Classes of differences leave it out.
var element = regexp.MustCompile(`\[[^\]]*\]`)

// configs compares the configurations of the first sandbox and of the first instance of each container.
func (d *differ) configs() {
	for _, name := range slices.Sorted(maps.Keys(d.upstream.Configs)) {
		u, w := d.upstream.Configs[name], d.wherry.Configs[name]
		if w == nil || !d.madeTogether(name) {
			continue // the other agent created no such container, or much later: callsOf reports that
		}
		for _, field := range slices.Sorted(maps.Keys(both(u, w))) {
			a, b := d.normal(u[field]), d.normal(w[field])
			if a == b || field == "envs in order" { // upstream takes the variables from a Go map
				continue
			}
			if OfHostID(field) && a != "" && b != "" {
				continue
			}
			if ofImage(field) && d.changedBefore(name) {
				d.excuse(excuseCrossed, 1)
				continue
			}
			kind := "a container"
			if name == "sandbox" {
				kind = "the sandbox"
			}
			differs := fmt.Sprintf(": %s: upstream %q, Wherry %q", element.ReplaceAllString(d.normal(field), "[]"), a, b)
			class := "config of " + kind + differs
			switch {
			case Decided(class):
			case d.c.Kind == Static:
				class = "config of " + kind + " of a static pod" + differs
			case strings.HasPrefix(field, "portMappings") && d.c.sidecarPorts():
				class = "config of " + kind + " of a pod with ports of a sidecar" + differs
			}
			if !slices.ContainsFunc(d.found, func(f Difference) bool { return f.Class == class }) {
				d.add(class, name+" "+field, u[field], w[field])
			}
		}
	}
}

// ofImage reports whether the value of a field depends on the image.
func ofImage(field string) bool {
	return strings.HasPrefix(field, "image.") || field == "annotations.io.kubernetes.container.hash" || field == "annotations.wherry.dev/spec-hash"
}

// changedBefore reports whether the case changed the image of a container before at least one agent created the container's first
// instance. Upstream's kubelet then uses the spec that it had when it began to start the containers of the pod.
func (d *differ) changedBefore(name string) bool {
	return slices.ContainsFunc(d.c.Acts, func(a Act) bool {
		made := func(t *Trace) bool {
			in := t.instances(name)[0]
			return in != nil && in.began.Sub(t.Created) > a.At
		}
		return a.Do == SetImage && a.Container == name && (made(d.upstream) || made(d.wherry))
	})
}
