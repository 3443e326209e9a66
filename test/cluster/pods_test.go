// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"testing"

	"github.com/lklrun/lklrun/test/kit/containerd"
)

const webName = "localhost/nginx:1"

const webConfig = `user www-data;
worker_processes 1;
pid /tmp/nginx.pid;
error_log /dev/stderr;
events { }
http { access_log /dev/stdout; server { listen 80; root /www; } }
`

// webImage returns an image of nginx, with tools for the tests.
func webImage(t *testing.T) []byte {
	return containerd.ProgramImage(t, webName, []string{"/usr/sbin/nginx", "-g", "daemon off;"}, []string{"nginx", "curl", "ss"},
		containerd.File{Name: "etc/nginx/nginx.conf", Kind: tar.TypeReg, Text: webConfig},
		containerd.File{Name: "www/index.html", Kind: tar.TypeReg, Text: "hello\n"},
		containerd.File{Name: "var/lib/nginx/", Kind: tar.TypeDir}, containerd.File{Name: "var/log/nginx/", Kind: tar.TypeDir},
	)
}
