// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/lklrun/lklrun/internal/remote/ondevice"
)

// EnvBundles is the variable that names the folder of the bundles, if they are not
// beside lklrun.
const EnvBundles = "LKLRUN_BUNDLES"

// maxBundle is the maximum size of an unpacked bundle, in bytes.
const maxBundle = 256 << 20

// bundle contains everything that a device of one architecture needs.
type bundle struct {
	ondevice.Manifest
	archive string // path of the archive
	size    int64  // size of the unpacked files, in bytes
}

// id returns the name of the bundle's folder on a device.
func (b *bundle) id() string { return b.Hash[:12] }

// bundleFolder returns the folder of the bundles: own if it is set, otherwise the
// folder that the environment names, otherwise the folder beside this program.
func bundleFolder(own string) (string, error) {
	if own == "" {
		own = os.Getenv(EnvBundles)
	}
	if own != "" {
		return own, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("looking for bundles: %w", err)
	}
	return filepath.Join(filepath.Dir(exe), "bundles"), nil
}

// findBundle finds the bundle of an architecture. If there is none, the error
// contains the remedy.
func findBundle(own, arch string) (*bundle, error) {
	dir, err := bundleFolder(own)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "lklrun-"+arch)
	text, err := os.ReadFile(name + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no bundle for %s (looked in %s); install the package lklrun-bundles, or build it with `make cross`", arch, dir)
	} else if err != nil {
		return nil, err
	}
	b := &bundle{archive: name + ".tar.gz"}
	if err := json.Unmarshal(text, &b.Manifest); err != nil || len(b.Hash) != hex.EncodedLen(sha256.Size) {
		return nil, fmt.Errorf("%s.json is not a bundle manifest; rebuild it with `make cross`", name)
	}
	for _, f := range b.Files {
		b.size += f.Size
	}
	return b, nil
}

// files reads the archive and returns the files to upload. The manifest is the last
// one.
func (b *bundle) files() ([]File, error) {
	text, err := os.ReadFile(b.archive)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != b.Hash {
		return nil, fmt.Errorf("%s does not match its manifest; rebuild both with `make cross`", b.archive)
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.archive, err)
	}
	var all []File
	r := tar.NewReader(io.LimitReader(z, maxBundle))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", b.archive, err)
		}
		name := path.Clean(h.Name)
		if !fs.ValidPath(name) {
			return nil, fmt.Errorf("%s: %q is not a valid file name in a bundle", b.archive, h.Name)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.archive, err)
			}
			all = append(all, Bytes(name, h.FileInfo().Mode().Perm(), data))
		case tar.TypeSymlink:
			all = append(all, File{Name: name, Link: h.Linkname})
		}
	}
	manifest, err := json.Marshal(b.Manifest)
	if err != nil {
		return nil, err
	}
	return append(all, Bytes(ondevice.ManifestFile, 0o644, manifest)), nil
}

// Bytes returns a file with this content.
func Bytes(name string, mode fs.FileMode, data []byte) File {
	return File{Name: name, Mode: mode, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}
