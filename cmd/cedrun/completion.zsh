#compdef cedrun
# zsh completion of cedrun, printed by `cedrun completion zsh`.
_cedrun() {
	local -a offered
	case $words[CURRENT-1] in
{{- range $name, $values := .Values}}
	--{{$name}}) compadd -- {{$values}}; return ;;
{{- end}}
	esac
	if ((CURRENT == 2)); then
		offered=(
{{- range .Commands}}
			{{quoted .Name .Usage}}
{{- end}}
		)
		_describe -t commands command offered
		return
	fi
	case $words[2] in
{{- range .Commands}}
	{{.Name}})
		offered=(
{{- range .Flags}}
			{{quoted .Name .Usage}}
{{- end}}
		)
		;;
{{- end}}
	esac
	if [[ $PREFIX == -* ]]; then
		_describe -o -t options option offered
	elif [[ $words[2] == completion ]]; then
		compadd bash zsh
	else
		_files
	fi
}
if [[ $funcstack[1] == _cedrun ]]; then
	_cedrun "$@"
else
	compdef _cedrun cedrun
fi
