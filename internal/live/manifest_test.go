package live

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"testing"

	"github.com/goccy/go-yaml"
)

// manifest is what a container engine is told by a Kubernetes manifest of ours.
type manifest struct {
	ConfigMaps map[string]map[string]string // by name: files
	Pod        podSpec                      // of the DaemonSet
}

type podSpec struct {
	HostNetwork    bool            `yaml:"hostNetwork"`
	HostPID        bool            `yaml:"hostPID"`
	InitContainers []containerSpec `yaml:"initContainers"`
	Containers     []containerSpec `yaml:"containers"`
	Volumes        []struct {
		Name      string `yaml:"name"`
		ConfigMap *struct {
			Name string `yaml:"name"`
		} `yaml:"configMap"`
		HostPath *struct {
			Path string `yaml:"path"`
		} `yaml:"hostPath"`
		EmptyDir *struct{} `yaml:"emptyDir"`
	} `yaml:"volumes"`
}

type containerSpec struct {
	Name            string   `yaml:"name"`
	Command         []string `yaml:"command"`
	Args            []string `yaml:"args"`
	SecurityContext struct {
		Privileged               bool   `yaml:"privileged"`
		AllowPrivilegeEscalation *bool  `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool   `yaml:"readOnlyRootFilesystem"`
		RunAsUser                uint32 `yaml:"runAsUser"`
		RunAsGroup               uint32 `yaml:"runAsGroup"`
		Capabilities             struct {
			Drop []string `yaml:"drop"`
			Add  []string `yaml:"add"`
		} `yaml:"capabilities"`
	} `yaml:"securityContext"`
	LivenessProbe  *probe `yaml:"livenessProbe"`
	ReadinessProbe *probe `yaml:"readinessProbe"`
	Resources      struct {
		Limits struct {
			Memory string `yaml:"memory"`
		} `yaml:"limits"`
	} `yaml:"resources"`
	VolumeMounts []struct {
		Name             string `yaml:"name"`
		MountPath        string `yaml:"mountPath"`
		ReadOnly         bool   `yaml:"readOnly"`
		MountPropagation string `yaml:"mountPropagation"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct {
		Host string `yaml:"host"`
		Port uint16 `yaml:"port"`
		Path string `yaml:"path"`
	} `yaml:"httpGet"`
}

// readManifest reads a file of deploy/kubernetes.
func readManifest(t *testing.T, name string) manifest {
	t.Helper()
	f, err := os.Open("../../deploy/kubernetes/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := manifest{ConfigMaps: map[string]map[string]string{}}
	for dec := yaml.NewDecoder(f); ; {
		var doc struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
			Data map[string]string `yaml:"data"`
			Spec struct {
				Template struct {
					Spec podSpec `yaml:"spec"`
				} `yaml:"template"`
			} `yaml:"spec"`
		}
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return m
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch doc.Kind {
		case "ConfigMap":
			m.ConfigMaps[doc.Metadata.Name] = doc.Data
		case "DaemonSet":
			m.Pod = doc.Spec.Template.Spec
		}
	}
}

// entrypoint is what the image runs.
func entrypoint(t *testing.T) (line []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^ENTRYPOINT (\[.*\])$`).FindSubmatch(text)
	if found == nil || json.Unmarshal(found[1], &line) != nil {
		t.Fatalf("no ENTRYPOINT in\n%s", text)
	}
	return line
}
