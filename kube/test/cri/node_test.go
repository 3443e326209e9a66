// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/lklrun/lklrun/kube/test/containerd"
	"github.com/lklrun/lklrun/test/kit"
)

// object is a JSON object.
type object = map[string]any

// A node is a machine with containerd.
type node struct {
	*containerd.Node
	t *testing.T

	handler string // the pods' runtime handler
	nri     bool   // whether the plug-in serves the pods
}

// newNode starts containerd in namespaces of its own, with lklrun as a runtime or as a
// plug-in for NRI.
func newNode(t *testing.T, nri bool) *node {
	n := &node{Node: containerd.New(t, containerd.Config{NRI: nri}), t: t, handler: "lklrun", nri: nri}
	if nri {
		n.handler = "crun"
	}
	n.Import(containerd.NewImage(t))
	return n
}

// in returns the node for a part of the test.
func (n *node) in(t *testing.T) *node {
	return &node{n.In(t), t, n.handler, n.nri}
}

// run runs a command on the node, which must succeed.
func (n *node) run(args ...string) string {
	n.t.Helper()
	return n.Run(args...)
}

// try makes a call of the container runtime interface.
func (n *node) try(method string, request object) (object, error) {
	n.t.Helper()
	text, err := json.Marshal(request)
	kit.Must(n.t, err)
	r := kit.Run(n.t, kit.Limit, n.Command("cricall", containerd.Socket, method, string(text)))
	if r.Status != 0 {
		return nil, fmt.Errorf("%v", r)
	}
	var reply object
	kit.Must(n.t, json.Unmarshal([]byte(r.Stdout), &reply))
	return reply, nil
}

// call is like try, but the call must succeed.
func (n *node) call(method string, request object) object {
	n.t.Helper()
	reply, err := n.try(method, request)
	if err != nil {
		n.t.Fatalf("%s: %v\ncontainerd: %s", method, err, n.Errors())
	}
	return reply
}

// A pod is the sandbox of a pod, with its configuration.
type pod struct {
	n        *node
	id, addr string
	config   object
}

// kubelet gives each container a PID namespace of its own.
var namespaces = object{"pid": "CONTAINER"}

// sandbox returns the configuration of a pod.
func sandbox(name string, annotations map[string]string, more object) object {
	config := object{
		"metadata": object{"name": name, "uid": name, "namespace": "default"}, "logDirectory": "/run/node/logs",
		"annotations": annotations, "linux": object{"securityContext": object{"namespaceOptions": namespaces}},
	}
	for k, v := range more {
		config[k] = v
	}
	return config
}

// start starts a pod.
func (n *node) start(config object) *pod {
	n.t.Helper()
	p := &pod{n: n, config: config}
	p.id = n.call("RunPodSandbox", object{"runtimeHandler": n.handler, "config": config})["podSandboxId"].(string)
	status := n.call("PodSandboxStatus", object{"podSandboxId": p.id})["status"].(object)
	p.addr, _ = status["network"].(object)["ip"].(string)
	return p
}

// instance is the name of the pod's stack.
func (p *pod) instance() string { return p.id[:12] }

// A container is one of a pod.
type container struct {
	n  *node
	id string
}

// try starts a container in the pod. security is its security context.
func (p *pod) try(name string, security object, command ...string) (container, error) {
	p.n.t.Helper()
	security["namespaceOptions"] = namespaces
	mount := func(path string) object { return object{"containerPath": path, "hostPath": path, "readonly": true} }
	reply, err := p.n.try("CreateContainer", object{"podSandboxId": p.id, "sandboxConfig": p.config, "config": object{
		"metadata": object{"name": name}, "image": object{"image": containerd.Image}, "command": command, "logPath": name + ".log",
		"mounts": []object{mount("/usr"), mount("/run/www")}, "linux": object{"securityContext": security},
	}})
	if err != nil {
		return container{}, err
	}
	c := container{p.n, reply["containerId"].(string)}
	_, err = p.n.try("StartContainer", object{"containerId": c.id})
	return c, err
}

// run is like try, but the container must start.
func (p *pod) run(name string, security object, command ...string) container {
	p.n.t.Helper()
	c, err := p.try(name, security, command...)
	if err != nil {
		p.n.t.Fatalf("container %s: %v\ncontainerd: %s", name, err, p.n.Errors())
	}
	return c
}

// end removes the pod.
func (p *pod) end() {
	p.n.t.Helper()
	p.n.call("StopPodSandbox", object{"podSandboxId": p.id})
	p.n.call("RemovePodSandbox", object{"podSandboxId": p.id})
}

// try runs a command in the container, as probes do, and returns its output.
func (c container) try(command ...string) (string, error) {
	c.n.t.Helper()
	reply, err := c.n.try("ExecSync", object{"containerId": c.id, "cmd": command, "timeout": 20})
	if err != nil {
		return "", err
	}
	// protobuf's JSON leaves out zeros, and encodes bytes like Go's.
	var result struct {
		Stdout, Stderr []byte
		ExitCode       int
	}
	text, err := json.Marshal(reply)
	kit.Must(c.n.t, err, json.Unmarshal(text, &result))
	if result.ExitCode != 0 {
		return "", fmt.Errorf("%q: status %d: %s%s", command, result.ExitCode, result.Stdout, result.Stderr)
	}
	return string(result.Stdout), nil
}

// exec is like try, but the command must succeed.
func (c container) exec(command ...string) string {
	c.n.t.Helper()
	out, err := c.try(command...)
	if err != nil {
		c.n.t.Fatal(err)
	}
	return out
}
