// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/kube/test/containerd"
	"github.com/lklrun/lklrun/test/kit"
)

const (
	nodeAddr = "10.77.0.1" // the node on the wire to the client
	wire     = "node0"

	files  = "/run/node/" // on the node
	admin  = files + "admin.conf"
	pki    = files + "pki"
	apiKey = files + "accounts.pem"

	readyLimit   = time.Minute
	kubectlLimit = 4 * time.Minute // its commands have limits of their own
)

// sysctls are those that kubelet sets.
const sysctls = "vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes"

// private hides the files of the machine that kubelet writes: sysctls that are not of a
// namespace, and folders with fixed names. Mounts propagate as on a machine with systemd.
const private = `
mkdir /run/node/sysctl
mount -n -t tmpfs tmpfs /run/node/sysctl
for f in ` + sysctls + `; do
	mkdir -p /run/node/sysctl/${f%/*}
	cat /proc/sys/$f >/run/node/sysctl/$f
done
for d in vm kernel fs; do
	mount -n --bind /proc/sys/$d /proc/sys/$d
	mount -n -o remount,bind,ro /proc/sys/$d
done
for f in $(cd /run/node/sysctl && find . -type f); do mount -n --bind /run/node/sysctl/$f /proc/sys/$f; done
mount -n --make-rshared /
`

// kubelet manages no cgroups, because the machine may have some that it does not support.
const kubelet = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://` + containerd.Socket + `
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
podLogsDir: /run/node/logs
volumePluginDir: /run/node/volumes
resolvConf: ""
maxPods: 120
`

// proxy masquerades all connections to a Service: the bridge passes answers of a pod to
// another one without the node's rules. The limits of connections are the machine's.
const proxy = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: node
clientConnection: {kubeconfig: ` + admin + `}
nftables: {masqueradeAll: true}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// A cluster is one node, and a client on a wire to it.
type cluster struct {
	*containerd.Node
	t      *testing.T
	client *kit.Netns
}

func tool(name string) string { return filepath.Join(kit.Root(), "build/tools/cluster", name) }

// newCluster starts a cluster, which ends with the test.
func newCluster(t *testing.T) *cluster {
	kit.Need(t, "etcd", "nft", "nginx", "ss", tool("kubelet"), tool("kube-apiserver"), tool("kube-controller-manager"),
		tool("kube-scheduler"), tool("kube-proxy"), tool("kubectl"))
	c := &cluster{t: t, Node: containerd.New(t, containerd.Config{NRI: true, Mounts: private, Folders: []string{tool("")}})}
	c.client = kit.NewNetns(t, "client")
	kit.Veth(t, c.Net, wire, c.client, "eth0")
	c.Net.Addr(t, wire, nodeAddr+"/24")
	c.client.Addr(t, "eth0", "10.77.0.2/24")
	// Connections to Services need a route before kube-proxy's rules change them.
	c.Net.Run(t, "ip", "route", "add", "default", "via", "10.77.0.2")

	c.file(apiKey, newKey(t))
	c.file(files+"tokens.csv", "admin,admin,admin,system:masters\n")
	c.file(files+"kubelet.yaml", kubelet)
	c.file(files+"proxy.yaml", proxy)
	const etcd = "http://127.0.0.1:2379"
	c.Start("etcd", "etcd", "--data-dir", files+"etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", "http://127.0.0.1:2380")
	api := c.Start("kube-apiserver", "kube-apiserver", "--etcd-servers", etcd, "--cert-dir", pki, "--advertise-address", nodeAddr,
		"--token-auth-file", files+"tokens.csv", "--authorization-mode", "Node,RBAC", "--service-cluster-ip-range", "10.96.0.0/16",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", apiKey,
		"--service-account-signing-key-file", apiKey, "--kubelet-preferred-address-types", "InternalIP")
	// The file with the certificate of the server ends with that of its authority.
	c.file(admin, object{
		"apiVersion": "v1", "kind": "Config", "current-context": "admin",
		"clusters": []object{{"name": "c", "cluster": object{"server": "https://" + nodeAddr + ":6443", "certificate-authority": pki + "/apiserver.crt"}}},
		"users":    []object{{"name": "admin", "user": object{"token": "admin"}}},
		"contexts": []object{{"name": "admin", "context": object{"cluster": "c", "user": "admin"}}},
	})
	api.Until(func() bool { return c.kubectl("get", "--raw", "/readyz").Status == 0 })
	c.Start("kube-controller-manager", "kube-controller-manager", "--kubeconfig", admin, "--leader-elect=false",
		"--service-account-private-key-file", apiKey, "--root-ca-file", pki+"/apiserver.crt", "--cert-dir", files+"manager")
	c.Start("kube-scheduler", "kube-scheduler", "--kubeconfig", admin, "--leader-elect=false", "--cert-dir", files+"scheduler")
	c.Start("kube-proxy", "kube-proxy", "--config", files+"proxy.yaml")
	node := c.Start("kubelet", "kubelet", "--config", files+"kubelet.yaml", "--kubeconfig", admin, "--hostname-override", "node",
		"--node-ip", nodeAddr, "--root-dir", files+"kubelet", "--cert-dir", files+"kubelet/pki")
	node.Until(func() bool { return c.kubectl("get", "node/node").Status == 0 })
	c.kube("wait", "--for=condition=Ready", "node/node", "--timeout=60s")
	c.Import(containerd.NewImage(t)) // of the sandboxes
	c.Import(webImage(t))
	c.kube("wait", "--for=create", "serviceaccount/default", "configmap/kube-root-ca.crt", "--timeout=60s")
	return c
}

func newKey(t *testing.T) string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	kit.Must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// object is a JSON object.
type object = map[string]any

// file writes a file of the node. content is its text, or an object.
func (c *cluster) file(path string, content any) {
	c.t.Helper()
	text, isText := content.(string)
	if !isText {
		all, err := json.Marshal(content)
		kit.Must(c.t, err)
		text = string(all)
	}
	cmd := c.Command("sh", "-c", `cat >"$0"`, path)
	cmd.Stdin = strings.NewReader(text)
	kit.OK(c.t, kit.Limit, cmd)
}

// kubectl runs kubectl on the node.
func (c *cluster) kubectl(args ...string) kit.Result {
	c.t.Helper()
	return kit.Run(c.t, kubectlLimit, c.Command(append([]string{"kubectl", "--kubeconfig", admin}, args...)...))
}

// kube is like kubectl, but the command must succeed. It returns the output.
func (c *cluster) kube(args ...string) string {
	c.t.Helper()
	r := c.kubectl(args...)
	if r.Status != 0 {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), r, c.events())
	}
	return r.Stdout
}

// events returns the newest events of the cluster.
func (c *cluster) events() string {
	return c.kubectl("get", "events", "--sort-by=.lastTimestamp").Stdout + c.kubectl("get", "pods", "-o", "wide").Stdout
}

// apply creates or changes an object of the cluster.
func (c *cluster) apply(o object) {
	c.t.Helper()
	path := fmt.Sprintf("%sapply-%s.json", files, o["metadata"].(object)["name"])
	c.file(path, o)
	c.kube("apply", "-f", path)
}

// in returns the cluster for a part of the test.
func (c *cluster) in(t *testing.T) *cluster {
	return &cluster{c.Node.In(t), t, c.client}
}
