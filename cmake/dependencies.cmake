# What lockstep builds with, by the distribution's names. CUDA is optional: without it everything builds and tests with
# the simulated device.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Contracts stay on in every build; NDEBUG would only take out the libraries' own asserts.
set(CMAKE_CXX_FLAGS_RELEASE "-O3")

option(LOCKSTEP_TESTS "Build the tests" ON)
option(LOCKSTEP_CUDA "Build the CUDA object when a CUDA toolkit is found" ON)
option(LOCKSTEP_STATIC "Link Boost, yaml-cpp, zlib and libcrypto statically, so that an installed tree runs elsewhere" ON)

find_package(Threads REQUIRED)
set(Boost_USE_STATIC_LIBS ${LOCKSTEP_STATIC})
find_package(Boost 1.75 REQUIRED COMPONENTS program_options json)
set(ZLIB_USE_STATIC_LIBS ${LOCKSTEP_STATIC})
find_package(ZLIB REQUIRED)
set(OPENSSL_USE_STATIC_LIBS ${LOCKSTEP_STATIC})
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)

# The distributions' package of yaml-cpp describes the shared library only (0.7 as `yaml-cpp`, 0.8 as
# `yaml-cpp::yaml-cpp`), but carries the static one too.
find_path(YAML_CPP_INCLUDE_DIR yaml-cpp/eventhandler.h REQUIRED)
if(LOCKSTEP_STATIC)
  find_library(YAML_CPP_LIBRARY NAMES libyaml-cpp.a REQUIRED)
else()
  find_library(YAML_CPP_LIBRARY NAMES yaml-cpp REQUIRED)
endif()
add_library(yaml-cpp UNKNOWN IMPORTED)
set_target_properties(
  yaml-cpp PROPERTIES IMPORTED_LOCATION "${YAML_CPP_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${YAML_CPP_INCLUDE_DIR}")
if(LOCKSTEP_STATIC)
  set_target_properties(yaml-cpp PROPERTIES INTERFACE_COMPILE_DEFINITIONS YAML_CPP_STATIC_DEFINE)
endif()

if(LOCKSTEP_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)  # The checks of tests/style.
endif()

if(LOCKSTEP_CUDA)
  find_package(CUDAToolkit 12.4 QUIET)
  if(CUDAToolkit_FOUND)
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # Architectures are given by -gencode where the CUDA object is made.
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    enable_language(CUDA)
    # CMake 3.25 does not know that nvcc takes C++20.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
  endif()
endif()
if(CUDAToolkit_FOUND)
  message(STATUS "lockstep: CUDA ${CUDAToolkit_VERSION}: the CUDA device is built")
else()
  message(STATUS "lockstep: no CUDA toolkit: the simulated device only")
endif()

# Attention by cuDNN needs headers alone: cudnn.h, and those of cudnn-frontend 1.x from the folder LOCKSTEP_CUDNN_FRONTEND
# or from its Python package (nvidia-cudnn-frontend). The library is opened at run time.
set(LOCKSTEP_CUDNN_FRONTEND "" CACHE PATH "Folder with include/cudnn_frontend.h, or with the header itself")
if(CUDAToolkit_FOUND)
  execute_process(
    COMMAND python3 -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    OUTPUT_VARIABLE site_packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(LOCKSTEP_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${LOCKSTEP_CUDNN_FRONTEND} ${site_packages}
            PATH_SUFFIXES include)
  find_path(LOCKSTEP_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${site_packages}/nvidia/cudnn/include)
  if(LOCKSTEP_CUDNN_FRONTEND_INCLUDE AND LOCKSTEP_CUDNN_INCLUDE)
    set(LOCKSTEP_CUDNN ON)
    message(STATUS "lockstep: attention by cuDNN is built (${LOCKSTEP_CUDNN_FRONTEND_INCLUDE})")
  else()
    message(STATUS "lockstep: attention by cuDNN is not built: no headers of cudnn-frontend, or no cudnn.h")
  endif()
endif()
