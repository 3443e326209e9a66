// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// Image is the name of NewImage's image, which containerd uses for sandboxes, too.
const Image = "localhost/image:latest"

// object is a JSON object.
type object = map[string]any

// NewImage returns an image whose /usr is that of the machine, if a container mounts it.
func NewImage(t *testing.T) []byte {
	pause, err := os.ReadFile(Tool("pause"))
	kit.Must(t, err)
	return archived(t, Image, []string{"/pause"}, []File{
		{"bin", tar.TypeSymlink, "usr/bin"}, {"sbin", tar.TypeSymlink, "usr/sbin"},
		{"lib", tar.TypeSymlink, "usr/lib"}, {"lib64", tar.TypeSymlink, "usr/lib64"},
		{"tmp/", tar.TypeDir, ""}, {"etc/", tar.TypeDir, ""}, {"root/", tar.TypeDir, ""}, {"mnt/", tar.TypeDir, ""},
		{"etc/passwd", tar.TypeReg, "root:x:0:0::/root:/bin/sh\n"}, {"pause", tar.TypeReg, string(pause)},
	})
}

// A File is one of an image. Text is the content, or the target of a symbolic link.
type File struct {
	Name string
	Kind byte // as in package tar
	Text string
}

// ProgramImage returns an image with programs of the machine, their libraries, and further
// files. All commands of busybox are in /bin.
func ProgramImage(t *testing.T, name string, entrypoint, programs []string, more ...File) []byte {
	files := append([]File{
		{"tmp/", tar.TypeDir, ""}, {"root/", tar.TypeDir, ""}, {"etc/passwd", tar.TypeReg, "root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/:/bin/false\n"},
		{"etc/group", tar.TypeReg, "root:x:0:\nwww-data:x:33:\n"},
	}, more...)
	seen := map[string]bool{}
	for _, p := range append(programs, "busybox") {
		path, err := exec.LookPath(p)
		kit.Must(t, err)
		for _, path := range append(libraries(path), path) {
			text, err := os.ReadFile(path)
			kit.Must(t, err)
			if path = strings.TrimPrefix(path, "/"); !seen[path] {
				seen[path] = true
				files = append(files, File{path, tar.TypeReg, string(text)})
			}
		}
	}
	for _, command := range strings.Fields(kit.Host.Run(t, "busybox", "--list")) {
		if path := "bin/" + command; !seen[path] && command != "busybox" {
			files = append(files, File{path, tar.TypeSymlink, "/usr/bin/busybox"})
		}
	}
	return archived(t, name, entrypoint, files)
}

var library = regexp.MustCompile(`(?m)(?:=> |^\s+)(/\S+)`)

// libraries returns the libraries of a program. A static program has none.
func libraries(path string) (paths []string) {
	out, _ := exec.Command("ldd", path).Output() // it fails for a static program
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		paths = append(paths, m[1])
	}
	return paths
}

// archived returns an image as podman save writes it.
func archived(t *testing.T, name string, entrypoint []string, files []File) []byte {
	layer := archive(t, files)
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux", "config": object{"Entrypoint": entrypoint},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	kit.Must(t, err)
	manifest, err := json.Marshal([]object{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	kit.Must(t, err)
	return archive(t, []File{
		{"manifest.json", tar.TypeReg, string(manifest)}, {"config.json", tar.TypeReg, string(config)},
		{"layer.tar", tar.TypeReg, string(layer)},
	})
}

func archive(t *testing.T, files []File) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Typeflag: f.Kind, Mode: 0o755}
		if f.Kind == tar.TypeSymlink {
			h.Linkname = f.Text
		} else {
			h.Size = int64(len(f.Text))
		}
		kit.Must(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := w.Write([]byte(f.Text))
			kit.Must(t, err)
		}
	}
	kit.Must(t, w.Close())
	return out.Bytes()
}
