package crispec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// securityOf returns the effective security context: each field is the container's if the container sets it, otherwise the pod's.
func securityOf(p *v1.Pod, c *v1.Container) v1.SecurityContext {
	var sc v1.SecurityContext
	if c.SecurityContext != nil {
		sc = *c.SecurityContext
	}
	if pod := p.Spec.SecurityContext; pod != nil {
		sc.SELinuxOptions = first(sc.SELinuxOptions, pod.SELinuxOptions)
		sc.RunAsUser = first(sc.RunAsUser, pod.RunAsUser)
		sc.RunAsGroup = first(sc.RunAsGroup, pod.RunAsGroup)
		sc.RunAsNonRoot = first(sc.RunAsNonRoot, pod.RunAsNonRoot)
		sc.SeccompProfile = first(sc.SeccompProfile, pod.SeccompProfile)
	}
	return sc
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// imageUser returns the user of an image: a number, a name, or root if it names none.
func imageUser(image *runtimeapi.Image) (uid *int64, name string) {
	switch {
	case image.GetUid() != nil:
		id := image.GetUid().GetValue()
		return &id, ""
	case image.GetUsername() != "":
		return nil, image.GetUsername()
	}
	return new(int64), ""
}

// verifyNonRoot enforces runAsNonRoot: "the Kubelet will validate the image at runtime to ensure that it does not
// run as UID 0 (root) and fail to start the container if it does".
func verifyNonRoot(p *v1.Pod, c *v1.Container, sc *v1.SecurityContext, image *runtimeapi.Image) error {
	if !isTrue(sc.RunAsNonRoot) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", p.Name+"_"+p.Namespace+"("+string(p.UID)+")", c.Name)
	if sc.RunAsUser != nil {
		if *sc.RunAsUser == 0 {
			return containerErr("container's runAsUser breaks non-root policy %s", where)
		}
		return nil
	}
	uid, name := imageUser(image)
	switch {
	case uid == nil:
		return containerErr("container has runAsNonRoot and image has non-numeric user (%s), "+
			"cannot verify user is non-root %s", name, where)
	case *uid == 0:
		return containerErr("container has runAsNonRoot and image will run as root %s", where)
	}
	if errs := validation.IsValidUserID(*uid); len(errs) > 0 {
		return containerErr("container has runAsNonRoot and image has an invalid user id (%d): %s %s",
			*uid, strings.Join(errs, "; "), where)
	}
	return nil
}

func (in *ContainerInput) security() (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := securityOf(in.Pod, in.Container)
	if err := verifyNonRoot(in.Pod, in.Container, &sc, in.Image); err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:   capabilities(sc.Capabilities),
		Privileged:     isTrue(sc.Privileged),
		SelinuxOptions: selinux(sc.SELinuxOptions),
		RunAsUser:      int64Value(sc.RunAsUser),
		RunAsGroup:     int64Value(sc.RunAsGroup),
		ReadonlyRootfs: isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:     sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		MaskedPaths:    []string{},
		ReadonlyPaths:  []string{},
	}
	if out.RunAsUser == nil {
		uid, name := imageUser(in.Image)
		out.RunAsUser, out.RunAsUsername = int64Value(uid), name
	}
	if sc.ProcMount == nil || *sc.ProcMount != v1.UnmaskedProcMount {
		out.MaskedPaths = append(slices.Clone(maskedPaths), in.Policy.MaskedPaths...)
		out.ReadonlyPaths = slices.Clone(readonlyPaths)
	}
	var err error
	if out.Seccomp, err = seccomp(sc.SeccompProfile, &in.Policy); err != nil {
		return nil, err
	}
	//lint:ignore SA1019 older runtimes read only the deprecated field ApparmorProfile
	if out.Apparmor, out.ApparmorProfile, err = apparmor(in.Pod, in.Container); err != nil {
		return nil, err
	}
	if out.NamespaceOptions, err = namespaces(in.Pod, in.Userns); err != nil {
		return nil, &Error{Reason: ReasonContainerConfig, Message: err.Error(), Err: err}
	}
	if in.TargetID != "" && out.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		out.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		out.NamespaceOptions.TargetId = in.TargetID
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy, err = groups(in.Pod, in.ExtraGroups)
	if err != nil {
		return nil, containerErr("%w", err)
	}
	return out, nil
}

// These paths are masked or read-only in every container's /proc and /sys; the defaults are common to all runtimes. They are
// never changed.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

func profile(kind runtimeapi.SecurityProfile_ProfileType, ref string) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
}

func seccomp(s *v1.SeccompProfile, policy *Policy) (*runtimeapi.SecurityProfile, error) {
	switch {
	case s == nil && policy.SeccompDefault, s != nil && s.Type == v1.SeccompProfileTypeRuntimeDefault:
		return profile(runtimeapi.SecurityProfile_RuntimeDefault, ""), nil
	case s == nil, s.Type == v1.SeccompProfileTypeUnconfined:
		return profile(runtimeapi.SecurityProfile_Unconfined, ""), nil
	case s.Type != v1.SeccompProfileTypeLocalhost:
		return nil, containerErr("seccompProfile.type %q is not known: use RuntimeDefault, Localhost or Unconfined", s.Type)
	case s.LocalhostProfile == nil || *s.LocalhostProfile == "":
		return nil, containerErr("localhostProfile must be set if seccompProfile type is Localhost")
	}
	// The path is "relative to the kubelet's configured seccomp profile location" and never leaves it.
	return profile(runtimeapi.SecurityProfile_Localhost,
		path.Join(policy.SeccompRoot, path.Clean("/"+*s.LocalhostProfile))), nil
}

// apparmor returns the container's AppArmor profile as a message, and as a string for older runtimes, which read only the string.
func apparmor(p *v1.Pod, c *v1.Container) (*runtimeapi.SecurityProfile, string, error) {
	a := AppArmor(p, c)
	if a == nil {
		return nil, "", nil
	}
	switch a.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return profile(runtimeapi.SecurityProfile_RuntimeDefault, ""), v1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case v1.AppArmorProfileTypeUnconfined:
		return profile(runtimeapi.SecurityProfile_Unconfined, ""), v1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case v1.AppArmorProfileTypeLocalhost:
		if a.LocalhostProfile == nil || *a.LocalhostProfile == "" {
			return nil, "", containerErr("appArmorProfile.localhostProfile must be set if appArmorProfile type is Localhost")
		}
		return profile(runtimeapi.SecurityProfile_Localhost, *a.LocalhostProfile),
			v1.DeprecatedAppArmorBetaProfileNamePrefix + *a.LocalhostProfile, nil
	}
	return nil, "", containerErr("unknown apparmor profile type: %q", a.Type)
}

// AppArmor returns the AppArmor profile of a container, or nil if it names none. Static pods may name it in the deprecated annotation,
// which API servers copy to the field.
func AppArmor(p *v1.Pod, c *v1.Container) *v1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	switch a := p.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; {
	case a == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case a == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	case strings.HasPrefix(a, v1.DeprecatedAppArmorBetaProfileNamePrefix):
		name := strings.TrimPrefix(a, v1.DeprecatedAppArmorBetaProfileNamePrefix)
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	if p.Spec.SecurityContext != nil {
		return p.Spec.SecurityContext.AppArmorProfile
	}
	return nil
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, a := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(a))
	}
	for _, d := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(d))
	}
	return out
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

func groups(p *v1.Pod, extra []int64) ([]int64, runtimeapi.SupplementalGroupsPolicy, error) {
	var out []int64
	policy := runtimeapi.SupplementalGroupsPolicy_Merge
	if sc := p.Spec.SecurityContext; sc != nil {
		if sc.FSGroup != nil {
			out = append(out, *sc.FSGroup)
		}
		out = append(out, sc.SupplementalGroups...)
		if sc.SupplementalGroupsPolicy != nil {
			v, ok := runtimeapi.SupplementalGroupsPolicy_value[string(*sc.SupplementalGroupsPolicy)]
			if !ok {
				return nil, 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *sc.SupplementalGroupsPolicy)
			}
			policy = runtimeapi.SupplementalGroupsPolicy(v)
		}
	}
	return append(out, extra...), policy, nil
}
