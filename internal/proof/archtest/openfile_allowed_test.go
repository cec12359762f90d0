package archtest

// Why no container, tenant or volume can decide what is at a path.
const (
	kernelText  = "a file of /proc, /sys or a cgroup: the kernel makes the names and the text"
	adminFile   = "a file that the node's administrator keeps, at a path of the configuration or of the operating system; it may be a link"
	ownFile     = "in a directory that only the agent writes to, below its root directory or its configured directories"
	userCommand = "a command that somebody runs by hand, with the rights of that person, on a file named to it"
	manifestDir = "the static pods' path belongs to the administrator: who can write there can run any pod. Its files may be links (those of a " +
		"mounted ConfigMap are); what is not regular is refused and no more than 10 MiB are read"
	readOnlyVolume = "a volume of files that the agent writes: containers have it mounted read-only"
)

// openAllowed are the exceptions, each by file, function and call.
var openAllowed = map[opening]string{
	{"agent/facts.go:Agent.maskedPaths", "path/filepath.Glob"}:                       kernelText,
	{"agent/ground.go:readFile", "os.ReadFile"}:                                      adminFile,
	{"internal/node/nodefacts/resolv.go:Resolver.Read", "os.ReadFile"}:               adminFile,
	{"cmd/wherry/csr.go:csrFlags.given", "os.ReadFile"}:                              userCommand,
	{"internal/cli/podctl/manifests.go:manifestFiles", "os.ReadDir"}:                 userCommand,
	{"internal/cli/podctl/manifests.go:manifests.read", "os.Open"}:                   userCommand,
	{"cmd/wherry/man.go:newMan", "os.WriteFile"}:                                     userCommand,
	{"agent/open.go:Agent.limitProcess", "os.WriteFile"}:                             kernelText,
	{"agent/open.go:setKernelAt", "os.ReadFile"}:                                     kernelText,
	{"agent/open.go:setKernelAt", "os.WriteFile"}:                                    kernelText,
	{"internal/cli/launch/own.go:Own.Forget", "os.ReadDir"}:                          ownFile,
	{"internal/cli/launch/own.go:Own.Forget", "path/filepath.Glob"}:                  kernelText,
	{"internal/cli/launch/own.go:Own.log", "os.OpenFile"}:                            ownFile,
	{"internal/cli/launch/own.go:resolvConf", "os.ReadFile"}:                         adminFile,
	{"internal/edge/socket/socket.go:lockFile", "os.OpenFile"}:                       ownFile,
	{"cmd/wherry/tools.go:writeBootstrap", "os.ReadFile"}:                            userCommand,
	{"internal/edge/cgroup/hierarchy.go:discover", "os.ReadFile"}:                    kernelText,
	{"internal/edge/cgroup/hierarchy.go:hierarchy.childQuota", "os.ReadDir"}:         kernelText,
	{"internal/edge/cgroup/hierarchy.go:hierarchy.tasks", "path/filepath.WalkDir"}:   kernelText,
	{"internal/edge/cgroup/own.go:Own", "os.ReadFile"}:                               kernelText,
	{"internal/edge/cgroup/pods.go:Cgroups.PodCgroups", "os.ReadDir"}:                kernelText,
	{"internal/edge/cgroup/hierarchy.go:readNumber", "os.ReadFile"}:                  kernelText,
	{"internal/edge/checkpoint/checkpoint.go:Dir.Load", "os.ReadFile"}:               ownFile,
	{"internal/edge/config/file.go:readDropIns", "path/filepath.WalkDir"}:            adminFile,
	{"internal/edge/config/file.go:readFile", "os.ReadFile"}:                         adminFile,
	{"internal/edge/config/host.go:ReadHostFacts", "os.ReadFile"}:                    kernelText,
	{"internal/edge/config/wherry.go:loadWherry", "os.ReadFile"}:                     adminFile,
	{"internal/cli/podctl/find.go:findSocket", "path/filepath.Glob"}:                 "names in /run/wherry, which only root enters",
	{"internal/base/hostfs/machine.go:Machine.Memory", "os.ReadFile"}:                kernelText,
	{"internal/base/hostfs/machine.go:Machine.Tasks", "os.ReadFile"}:                 kernelText,
	{"internal/base/hostfs/machine.go:Machine.first", "os.ReadFile"}:                 kernelText,
	{"internal/base/hostfs/machine.go:Machine.hugePages", "os.ReadDir"}:              kernelText,
	{"internal/base/hostfs/open_dir.go:rootOf", "os.OpenRoot"}:                       "opens again, by its descriptor, a directory that is known to be one",
	{"internal/base/hostfs/open_untrusted.go:openToOverwrite", "os.OpenFile"}:        "makes a new file: O_EXCL opens nothing that exists",
	{"internal/base/hostfs/descent.go:mountID", "os.ReadFile"}:                       kernelText,
	{"internal/base/hostfs/mount.go:swaps", "os.ReadFile"}:                           kernelText,
	{"internal/edge/identity/byhand.go:HandRequest.kubeconfig", "os.ReadFile"}:       userCommand,
	{"internal/edge/identity/key.go:keptKey", "os.ReadFile"}:                         ownFile,
	{"internal/edge/identity/store.go:loadPair", "os.ReadFile"}:                      ownFile,
	{"internal/edge/image/credentials.go:credentials.lookup", "os.ReadFile"}:         adminFile,
	{"internal/node/nodefacts/address.go:defaultAddress", "os.Open"}:                 kernelText,
	{"internal/edge/server/debug.go:Server.serveSystemLog", "net/http.FileServerFS"}: "serves a hostfs.UntrustedFS",
	{"internal/edge/server/tls.go:ClientCAs.read", "os.ReadFile"}:                    adminFile,
	{"internal/edge/source/dir.go:scan.list", "os.ReadDir"}:                          manifestDir,
	{"internal/edge/source/dir.go:scan.read", "os.Open"}:                             manifestDir,
	{"internal/edge/push/store.go:store.load", "os.ReadDir"}:                         ownFile,
	{"internal/edge/push/store.go:store.load", "os.ReadFile"}:                        ownFile,
	{"internal/edge/stats/groups.go:tree.containers", "os.ReadDir"}:                  kernelText,
	{"internal/edge/stats/groups.go:tree.walk", "os.ReadDir"}:                        kernelText,
	{"internal/edge/stats/network.go:defaultRoute", "os.ReadFile"}:                   kernelText,
	{"internal/edge/stats/network.go:readNetwork", "os.ReadFile"}:                    kernelText,
	{"internal/edge/stats/processes.go:reader.descriptors", "os.Open"}:               kernelText,
	{"internal/edge/stats/read.go:open", "golang.org/x/sys/unix.Open"}:               kernelText,
	{"internal/edge/stats/read.go:reader.rootUsage", "os.ReadFile"}:                  kernelText,
	{"internal/edge/stats/read.go:tree.pid", "os.ReadFile"}:                          kernelText,
	{"internal/edge/userns/userns.go:Ranges.find", "os.ReadDir"}:                     ownFile,
	{"internal/edge/userns/userns.go:read", "os.ReadFile"}:                           ownFile,
	{"internal/edge/volume/atomic.go:writer.clear", "os.ReadDir"}:                    readOnlyVolume,
	{"internal/edge/volume/atomic.go:writer.fill", "os.WriteFile"}:                   readOnlyVolume,
	{"internal/edge/volume/atomic.go:writer.shows", "path/filepath.WalkDir"}:         readOnlyVolume,
	{"internal/edge/volume/atomic.go:writer.sweep", "os.ReadDir"}:                    readOnlyVolume,
	{"internal/edge/volume/filesusage.go:readDir", "os.ReadDir"}:                     "lists directories that only the agent writes to: containers have single files of them mounted",
	{"internal/edge/volume/hostpath.go:makeFile", "os.OpenFile"}:                     "makes a new file for FileOrCreate: O_EXCL opens nothing that exists; the path is one of the node, which the pod's author may mount",
	{"internal/edge/volume/podfiles.go:Volumes.messageFile", "os.OpenFile"}:          "makes a new file: O_EXCL opens nothing that exists; containers have the file mounted, not its directory",
	{"internal/edge/volume/podfiles.go:pruneMessages", "os.ReadDir"}:                 "lists a directory that only the agent writes to: containers have single files of it mounted",
	{"internal/edge/volume/subpath.go:makeTarget", "os.OpenFile"}:                    "makes a new file in a directory that only the agent writes to: O_EXCL opens nothing that exists",
	{"internal/edge/volume/teardown.go:Volumes.Orphans", "os.ReadDir"}:               ownFile,
	{"internal/edge/pullrecord/file.go:names", "os.Open"}:                            ownFile,
}
